# Who may do what: one resource for each line of the table in docs/guides/deployment.md, in its order; a test compares
# the two. Every grant is on the smallest thing that takes one: a bucket, a repository, an account.

locals {
  # Name of an object as conditions see it: https://cloud.google.com/iam/docs/conditions-resource-attributes
  objects = "projects/_/buckets/${google_storage_bucket.store.name}/objects/${var.store_prefix}"

  # What the jobs of a reservation are signed with. Listing is of the bucket, so it stays allowed.
  no_keys = "!resource.name.startsWith(\"${local.objects}/job_keys/\")"

  # Folders in a run's folder, or in a mailbox in it.
  reported = join("", ["(", join(" || ", [for folder in ["evaluations", "hangs", "head", "probes", "training", "trials", "workers"] : "resource.name.extract(\"${local.objects}/runs/{below}/${folder}/\") != \"\""]), ")"])
}

resource "google_project_iam_member" "airflow_rents_tpus" {
  project = var.project_id
  role    = google_project_iam_custom_role.tpu_renter.name
  member  = google_service_account.airflow.member
}

resource "google_project_iam_member" "airflow_starts_data_jobs" {
  project = var.project_id
  role    = google_project_iam_custom_role.data_job_launcher.name
  member  = google_service_account.airflow.member
}

resource "google_project_iam_member" "airflow_sees_the_project" {
  project = var.project_id
  role    = google_project_iam_custom_role.project_viewer.name
  member  = google_service_account.airflow.member
}

resource "google_storage_bucket_iam_member" "airflow_keeps_the_store" {
  bucket = google_storage_bucket.store.name
  role   = "roles/storage.objectUser"
  member = google_service_account.airflow.member
}

resource "google_storage_bucket_iam_member" "airflow_sees_where_the_store_is" {
  bucket = google_storage_bucket.store.name
  role   = "roles/storage.legacyBucketReader"
  member = google_service_account.airflow.member
}

resource "google_storage_bucket_iam_member" "airflow_stages_data_jobs" {
  bucket = google_storage_bucket.temp.name
  role   = "roles/storage.objectUser"
  member = google_service_account.airflow.member
}

resource "google_storage_bucket_iam_member" "airflow_sees_where_temp_is" {
  bucket = google_storage_bucket.temp.name
  role   = "roles/storage.legacyBucketReader"
  member = google_service_account.airflow.member
}

resource "google_service_account_iam_member" "airflow_starts_tpu_vms" {
  service_account_id = google_service_account.tpu_vm.name
  role               = "roles/iam.serviceAccountUser"
  member             = google_service_account.airflow.member
}

resource "google_service_account_iam_member" "airflow_starts_data_machines" {
  service_account_id = google_service_account.data_job.name
  role               = "roles/iam.serviceAccountUser"
  member             = google_service_account.airflow.member
}

resource "google_artifact_registry_repository_iam_member" "airflow_pulls_its_image" {
  repository = google_artifact_registry_repository.images.name
  location   = var.region
  role       = "roles/artifactregistry.reader"
  member     = google_service_account.airflow.member
}

resource "google_project_iam_member" "airflow_is_composer" {
  count = var.composer_image_version == "" ? 0 : 1

  project = var.project_id
  role    = "roles/composer.worker"
  member  = google_service_account.airflow.member
}

resource "google_project_iam_member" "tpu_vm_deletes_its_tpu" {
  project = var.project_id
  role    = google_project_iam_custom_role.tpu_self_delete.name
  member  = google_service_account.tpu_vm.member
}

resource "google_storage_bucket_iam_member" "tpu_vm_reads_the_store" {
  bucket = google_storage_bucket.store.name
  role   = "roles/storage.objectViewer"
  member = google_service_account.tpu_vm.member

  condition {
    title      = "all but keys"
    expression = local.no_keys
  }
}

# What agent and jobs report. What decides lies beside it in the folder of a run, where only Airflow writes: job specs
# and their signatures, attempts, leases, plans, verdicts, approvals, outcomes. A test follows the writes of real runs.
resource "google_storage_bucket_iam_member" "tpu_vm_reports_of_runs" {
  bucket = google_storage_bucket.store.name
  role   = "roles/storage.objectUser"
  member = google_service_account.tpu_vm.member

  condition {
    title      = "what jobs make and agents report"
    expression = join(" && ", ["resource.name.startsWith(\"${local.objects}/runs/\")", local.reported])
  }
}

resource "google_artifact_registry_repository_iam_member" "tpu_vm_pulls_its_image" {
  repository = google_artifact_registry_repository.images.name
  location   = var.region
  role       = "roles/artifactregistry.reader"
  member     = google_service_account.tpu_vm.member
}

resource "google_project_iam_member" "data_job_works_for_dataflow" {
  project = var.project_id
  role    = "roles/dataflow.worker"
  member  = google_service_account.data_job.member
}

resource "google_storage_bucket_iam_member" "data_job_reads_the_store" {
  bucket = google_storage_bucket.store.name
  role   = "roles/storage.objectViewer"
  member = google_service_account.data_job.member

  condition {
    title      = "all but keys"
    expression = local.no_keys
  }
}

resource "google_storage_bucket_iam_member" "data_job_writes_shards" {
  bucket = google_storage_bucket.store.name
  role   = "roles/storage.objectUser"
  member = google_service_account.data_job.member

  condition {
    title      = "what the data job makes"
    expression = join(" || ", [for folder in ["decisions", "scratch", "shards", "signatures"] : "resource.name.startsWith(\"${local.objects}/${folder}/\")"])
  }
}

resource "google_storage_bucket_iam_member" "data_job_writes_indexes" {
  bucket = google_storage_bucket.store.name
  role   = "roles/storage.objectUser"
  member = google_service_account.data_job.member

  condition {
    title      = "indexes of documents"
    expression = "resource.name.startsWith(\"${local.objects}/lineages/\") && resource.name.endsWith(\".npz\")"
  }
}

# Preparations only: what people wrote, the tasks' descriptions and examples, lies beside them.
resource "google_storage_bucket_iam_member" "data_job_prepares_tasks" {
  bucket = google_storage_bucket.store.name
  role   = "roles/storage.objectUser"
  member = google_service_account.data_job.member

  condition {
    title      = "prepared tasks"
    expression = "resource.name.startsWith(\"${local.objects}/tasks/\") && resource.name.extract(\"${local.objects}/tasks/{name}/prepared/\") != \"\""
  }
}

resource "google_storage_bucket_iam_member" "data_job_uses_temp" {
  bucket = google_storage_bucket.temp.name
  role   = "roles/storage.objectUser"
  member = google_service_account.data_job.member
}

resource "google_artifact_registry_repository_iam_member" "data_job_pulls_its_image" {
  repository = google_artifact_registry_repository.images.name
  location   = var.region
  role       = "roles/artifactregistry.reader"
  member     = google_service_account.data_job.member
}

resource "google_project_iam_member" "reaper_deletes_tpus" {
  count = var.reaper_image == "" ? 0 : 1

  project = var.project_id
  role    = google_project_iam_custom_role.tpu_reaper.name
  member  = google_service_account.reaper[0].member
}

resource "google_storage_bucket_iam_member" "reaper_reads_the_store" {
  count = var.reaper_image == "" ? 0 : 1

  bucket = google_storage_bucket.store.name
  role   = "roles/storage.objectViewer"
  member = google_service_account.reaper[0].member

  condition {
    title      = "all but keys"
    expression = local.no_keys
  }
}

resource "google_storage_bucket_iam_member" "reaper_signs_its_passes" {
  count = var.reaper_image == "" ? 0 : 1

  bucket = google_storage_bucket.store.name
  role   = "roles/storage.objectUser"
  member = google_service_account.reaper[0].member

  condition {
    title      = "the reaper's sign of life"
    expression = "resource.name.startsWith(\"${local.objects}/reaper/\")"
  }
}

resource "google_cloud_run_v2_job_iam_member" "reaper_starts_itself" {
  count = var.reaper_image == "" ? 0 : 1

  name     = google_cloud_run_v2_job.reaper[0].name
  location = var.region
  role     = "roles/run.invoker"
  member   = google_service_account.reaper[0].member
}

resource "google_artifact_registry_repository_iam_member" "image_builder_pushes" {
  repository = google_artifact_registry_repository.images.name
  location   = var.region
  role       = "roles/artifactregistry.writer"
  member     = google_service_account.image_builder.member
}

resource "google_storage_bucket_iam_member" "image_builder_reads_the_source" {
  bucket = google_storage_bucket.temp.name
  role   = "roles/storage.objectViewer"
  member = google_service_account.image_builder.member
}

resource "google_project_iam_member" "image_builder_writes_logs" {
  project = var.project_id
  role    = "roles/logging.logWriter"
  member  = google_service_account.image_builder.member
}
