# Who acts. Keys are made for none of them: where Airflow runs outside of Google Cloud, see docs/guides/deployment.md.
resource "google_service_account" "airflow" {
  account_id   = "${var.account_prefix}-airflow"
  display_name = "Airflow: rents TPUs, starts the data job, keeps the store"

  depends_on = [google_project_service.api]
}

resource "google_service_account" "tpu_vm" {
  account_id   = "${var.account_prefix}-tpu-vm"
  display_name = "TPU VM: trains, and deletes its own TPU when it is forgotten"

  depends_on = [google_project_service.api]
}

resource "google_service_account" "data_job" {
  account_id   = "${var.account_prefix}-data-job"
  display_name = "Dataflow's machines: turn text into records"

  depends_on = [google_project_service.api]
}

resource "google_service_account" "reaper" {
  count = var.reaper_image == "" ? 0 : 1

  account_id   = "${var.account_prefix}-reaper"
  display_name = "Reaper outside of Airflow: deletes forgotten TPUs"

  depends_on = [google_project_service.api]
}

resource "google_service_account" "image_builder" {
  account_id   = "${var.account_prefix}-image-builder"
  display_name = "Cloud Build: builds, tries and pushes the images"

  depends_on = [google_project_service.api]
}

# Predefined roles are wider than what the parts do. Permissions of Cloud TPU:
# https://cloud.google.com/iam/docs/roles-permissions/tpu. Queued resources have none of their own there.
resource "google_project_iam_custom_role" "tpu_renter" {
  role_id     = "${replace(var.account_prefix, "-", "_")}_tpu_renter"
  title       = "Rent TPUs and give them back"
  description = "What Airflow asks of the Cloud TPU API."
  permissions = [
    "tpu.acceleratortypes.list",
    "tpu.locations.list",
    "tpu.nodes.create",
    "tpu.nodes.delete",
    "tpu.nodes.get",
    "tpu.nodes.list",
    "tpu.operations.get",
    "tpu.runtimeversions.list",
  ]

  depends_on = [google_project_service.api]
}

resource "google_project_iam_custom_role" "tpu_reaper" {
  role_id     = "${replace(var.account_prefix, "-", "_")}_tpu_reaper"
  title       = "Find TPUs and delete them"
  description = "What the reaper asks of the Cloud TPU API."
  permissions = [
    "tpu.nodes.delete",
    "tpu.nodes.get",
    "tpu.nodes.list",
  ]

  depends_on = [google_project_service.api]
}

resource "google_project_iam_custom_role" "tpu_self_delete" {
  role_id     = "${replace(var.account_prefix, "-", "_")}_tpu_self_delete"
  title       = "Delete a TPU"
  description = "All that a TPU VM ever asks of the Cloud TPU API."
  permissions = [
    "tpu.nodes.delete",
  ]

  depends_on = [google_project_service.api]
}

resource "google_project_iam_custom_role" "project_viewer" {
  role_id     = "${replace(var.account_prefix, "-", "_")}_project_viewer"
  title       = "See networks, enabled APIs and quotas"
  description = "What `preflight cloud` and the task validate look at, and change nothing."
  permissions = [
    "compute.networks.get",
    "compute.subnetworks.get",
    "serviceusage.quotas.get",
    "serviceusage.services.get",
  ]

  depends_on = [google_project_service.api]
}

resource "google_project_iam_custom_role" "data_job_launcher" {
  role_id     = "${replace(var.account_prefix, "-", "_")}_data_job_launcher"
  title       = "Start, follow and cancel Dataflow jobs"
  description = "What Airflow's data task asks of Dataflow; roles/dataflow.developer may also start builds."
  permissions = [
    "dataflow.jobs.cancel",
    "dataflow.jobs.create",
    "dataflow.jobs.get",
    "dataflow.jobs.list",
    "dataflow.jobs.updateContents",
    "dataflow.messages.list",
    "dataflow.metrics.get",
  ]

  depends_on = [google_project_service.api]
}
