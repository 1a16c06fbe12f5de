# The reaper without Airflow: still there when Airflow's machine is not. `python -m tpu_lifecycle reap` in a Cloud
# Run job, started by Cloud Scheduler.
resource "google_cloud_run_v2_job" "reaper" {
  count = var.reaper_image == "" ? 0 : 1

  name                = "${var.account_prefix}-tpu-reaper"
  location            = var.region
  labels              = local.labels
  deletion_protection = false

  template {
    template {
      service_account = google_service_account.reaper[0].email
      max_retries     = 1
      timeout         = "900s" # one pass deletes 50 TPUs at most, with pauses

      containers {
        image   = var.reaper_image
        command = ["python"]
        args = concat(
          ["-m", "tpu_lifecycle", "reap", "--once", "--project", var.project_id],
          flatten([for zone in var.tpu_zones : ["--zone", zone]]),
        )

        env {
          name  = "REPRETRAIN_STORE_URI"
          value = local.store_uri
        }
        env {
          name  = "REPRETRAIN_OWNER"
          value = var.owner
        }

        resources {
          limits = {
            cpu    = "1"
            memory = "1Gi"
          }
        }
      }
    }
  }

  depends_on = [google_project_service.api]
}

resource "google_cloud_scheduler_job" "reaper" {
  count = var.reaper_image == "" ? 0 : 1

  name             = "${var.account_prefix}-tpu-reaper"
  description      = "Starts the reaper of TPUs."
  region           = var.region
  schedule         = var.reaper_schedule
  time_zone        = "Etc/UTC"
  attempt_deadline = "60s"

  http_target {
    http_method = "POST"
    uri         = "https://run.googleapis.com/v2/${google_cloud_run_v2_job.reaper[0].id}:run"

    oauth_token {
      service_account_email = google_service_account.reaper[0].email
    }
  }
}
