# What differs between installations; terraform.tfvars.example has the lines to fill in.

variable "project_id" {
  description = "Project that everything is made in. One of its own is best: the TPU VM may delete any TPU of its project."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{4,28}[a-z0-9]$", var.project_id))
    error_message = "project_id is the id of a project, such as my-project-1: 6 to 30 lower-case letters, digits and hyphens."
  }
}

variable "region" {
  description = "Region of bucket, network, images and data job: that of the TPU zones."
  type        = string

  validation {
    condition     = can(regex("^[a-z]+-[a-z]+[0-9]+$", var.region))
    error_message = "region is a single region such as us-central1; a multi-region such as US is read more slowly and billed."
  }
}

variable "tpu_zones" {
  description = "Zones to rent TPUs in, in the order in which they are asked; all in the region."
  type        = list(string)

  validation {
    condition     = length(var.tpu_zones) > 0 && alltrue([for zone in var.tpu_zones : startswith(zone, "${var.region}-")])
    error_message = "tpu_zones needs at least one zone, and all have to lie in region, as the bucket does."
  }
}

variable "base_preset" {
  description = "Preset that the written one extends, such as bert_base_v5e; those are in pipeline_config/presets."
  type        = string
  default     = "bert_base_v5e"

  validation {
    condition     = can(regex("^[a-z0-9_]+$", var.base_preset))
    error_message = "base_preset is the name of a preset, without .toml."
  }
}

variable "base_finetuning_preset" {
  description = "As base_preset, for the DAG bert_finetuning; those are in pipeline_config/presets/finetuning."
  type        = string
  default     = "finetuning_base_v5e"

  validation {
    condition     = can(regex("^[a-z0-9_]+$", var.base_finetuning_preset))
    error_message = "base_finetuning_preset is the name of a preset, without .toml."
  }
}

variable "bucket_name" {
  description = "Name of the bucket for the store; unique in all of Cloud Storage. The data job's temporary bucket has -temp behind it."
  type        = string

  validation {
    condition     = can(regex("^[a-z0-9][a-z0-9-]{1,55}[a-z0-9]$", var.bucket_name))
    error_message = "bucket_name has 3 to 57 lower-case letters, digits and hyphens."
  }
}

variable "store_prefix" {
  description = "Folder of the bucket that the store begins in."
  type        = string
  default     = "store"

  validation {
    condition     = can(regex("^[a-z0-9][a-z0-9._-]*$", var.store_prefix))
    error_message = "store_prefix is one folder name, without slashes: the rights of the accounts are given below it."
  }
}

variable "noncurrent_days" {
  description = "Days for which an object that was replaced or deleted can be brought back."
  type        = number
  default     = 14

  validation {
    condition     = var.noncurrent_days >= 7 && floor(var.noncurrent_days) == var.noncurrent_days
    error_message = "noncurrent_days is a whole number of at least 7, so that a mistake of Friday can be undone on Monday."
  }
}

variable "delete_store_with_everything" {
  description = "Whether `terraform destroy` deletes the bucket with all models in it. Otherwise it refuses to while there are any."
  type        = bool
  default     = false
}

variable "owner" {
  description = "Label `owner` of the TPUs (REPRETRAIN_OWNER) and of what is made here. Installations in one project need different ones."
  type        = string
  default     = "repretraining"

  validation {
    condition     = can(regex("^[a-z]([a-z0-9_-]{0,61}[a-z0-9])?$", var.owner))
    error_message = "owner is a label's value: lower-case letters, digits, hyphens and underscores."
  }
}

variable "account_prefix" {
  description = "First part of the service accounts' ids and of the network's name."
  type        = string
  default     = "bert"

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{1,12}$", var.account_prefix))
    error_message = "account_prefix has 2 to 13 lower-case letters, digits and hyphens, as an account's id has at most 30."
  }
}

variable "subnetwork_range" {
  description = "Private IPv4 range of the subnetwork: an address for each TPU host and each machine of the data job."
  type        = string
  default     = "10.64.0.0/20"

  validation {
    condition     = can(cidrhost(var.subnetwork_range, 1)) && can(regex("^(10\\.|172\\.(1[6-9]|2[0-9]|3[01])\\.|192\\.168\\.)", var.subnetwork_range))
    error_message = "subnetwork_range is a private range (RFC 1918) such as 10.64.0.0/20."
  }
}

variable "tpu_slices_of_several_hosts" {
  description = "Whether TPU slices of several hosts are used: only then may TPU VMs connect to each other, over TCP. The preset then gives them a network tag."
  type        = bool
  default     = false
}

variable "ssh_through_iap" {
  description = "Whether people can log in to TPU VMs, through Google's Identity-Aware Proxy, if their roles allow it. For the first runs, and for trouble."
  type        = bool
  default     = false
}

variable "data_job_image" {
  description = "Image of the data job's machines, by digest: REGION-docker.pkg.dev/PROJECT/REPOSITORY/NAME@sha256:…; empty: the data job runs on Airflow's machine."
  type        = string
  default     = ""

  validation {
    condition     = var.data_job_image == "" || can(regex("@sha256:[0-9a-f]{64}$", var.data_job_image))
    error_message = "data_job_image ends with @sha256: and 64 hexadecimal digits; a tag can be moved to other code."
  }
}

variable "trainer_image" {
  description = "Image that agent and trainer run in on the TPU VM, bert-trainer-tpu, by digest: REGION-docker.pkg.dev/PROJECT/REPOSITORY/NAME@sha256:…; empty: none yet, and no run can train on a real TPU."
  type        = string
  default     = ""

  validation {
    condition     = var.trainer_image == "" || can(regex("^[a-z0-9][a-z0-9._:/-]*@sha256:[0-9a-f]{64}$", var.trainer_image))
    error_message = "trainer_image ends with @sha256: and 64 hexadecimal digits; a tag can be moved to other packages."
  }
}

variable "billing_account" {
  description = "Billing account that pays for the project, such as 000000-000000-000000; the budget is made there."
  type        = string

  validation {
    condition     = can(regex("^[0-9A-F]{6}-[0-9A-F]{6}-[0-9A-F]{6}$", var.billing_account))
    error_message = "billing_account has the form 000000-000000-000000."
  }
}

variable "monthly_budget" {
  description = "Amount a month, in the billing account's currency, at parts of which mail is sent. It stops nothing: the budget of each run does."
  type        = number

  validation {
    condition     = var.monthly_budget >= 1 && floor(var.monthly_budget) == var.monthly_budget
    error_message = "monthly_budget is a whole amount of at least 1."
  }
}

variable "alert_email" {
  description = "Address that the budget's mail goes to, besides the billing account's administrators."
  type        = string

  validation {
    condition     = can(regex("^[^@ ]+@[^@ ]+[.][^@ ]+$", var.alert_email))
    error_message = "alert_email is a mail address."
  }
}

variable "reaper_image" {
  description = "Airflow's image, by digest, for a reaper that Cloud Scheduler starts without Airflow; empty: none, use cron on any machine."
  type        = string
  default     = ""

  validation {
    condition     = var.reaper_image == "" || can(regex("@sha256:[0-9a-f]{64}$", var.reaper_image))
    error_message = "reaper_image ends with @sha256: and 64 hexadecimal digits; a tag can be moved to other code."
  }
}

variable "reaper_schedule" {
  description = "When that reaper runs: a cron expression, UTC."
  type        = string
  default     = "*/10 * * * *"

  validation {
    condition     = length(split(" ", var.reaper_schedule)) == 5
    error_message = "reaper_schedule is a cron expression of five fields."
  }
}

variable "composer_image_version" {
  description = "Image of a Cloud Composer 3 environment, such as composer-3-airflow-…; empty: none, Airflow runs elsewhere. It costs money at all times."
  type        = string
  default     = ""

  validation {
    condition     = var.composer_image_version == "" || startswith(var.composer_image_version, "composer-3-airflow-3.")
    error_message = "composer_image_version begins with composer-3-airflow-3., as the DAGs are for Airflow 3."
  }
}

variable "labels" {
  description = "More labels for everything that can have them."
  type        = map(string)
  default     = {}

  validation {
    condition     = alltrue([for key, value in var.labels : can(regex("^[a-z][a-z0-9_-]{0,62}$", key)) && can(regex("^[a-z0-9_-]{0,63}$", value))])
    error_message = "labels have keys and values of lower-case letters, digits, hyphens and underscores."
  }
}
