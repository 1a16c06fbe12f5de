# A place for re-pretraining: store, images, network, accounts with just the rights they use, and a budget.
# docs/guides/deployment.md says what it costs, how to remove it, and has the table of all rights.

locals {
  labels = merge(var.labels, {
    application = "bert-repretraining"
    owner       = var.owner
  })

  # APIs of all installations, and those of the parts that are switched on.
  services = toset(concat(
    [
      "artifactregistry.googleapis.com",
      "billingbudgets.googleapis.com",
      "cloudbuild.googleapis.com",
      "cloudresourcemanager.googleapis.com",
      "compute.googleapis.com",
      "iam.googleapis.com",
      "logging.googleapis.com",
      "monitoring.googleapis.com",
      "storage.googleapis.com",
      "tpu.googleapis.com",
    ],
    var.ssh_through_iap ? ["iap.googleapis.com"] : [],
    var.data_job_image == "" ? [] : ["dataflow.googleapis.com"],
    var.reaper_image == "" ? [] : ["run.googleapis.com", "cloudscheduler.googleapis.com"],
    var.composer_image_version == "" ? [] : ["composer.googleapis.com"],
  ))
}

resource "google_project_service" "api" {
  for_each = local.services

  service            = each.value
  disable_on_destroy = false # something else in the project may use it
}
