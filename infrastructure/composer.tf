# Airflow as a service, if you want to pay for that: about as much as a small TPU, at all times.
resource "google_composer_environment" "airflow" {
  count = var.composer_image_version == "" ? 0 : 1

  name   = "${var.account_prefix}-repretraining"
  region = var.region
  labels = local.labels

  config {
    enable_private_environment = true
    environment_size           = "ENVIRONMENT_SIZE_SMALL"

    node_config {
      network         = google_compute_network.pipeline.id
      subnetwork      = google_compute_subnetwork.pipeline.id
      service_account = google_service_account.airflow.email
    }

    software_config {
      image_version = var.composer_image_version
      env_variables = merge(
        { for name, value in local.environment : name => value if startswith(name, "REPRETRAIN_") },
        { REPRETRAIN_PRESET = "/home/airflow/gcs/data/${local.preset_file}" },
      )
    }
  }

  depends_on = [google_project_iam_member.airflow_is_composer]
}
