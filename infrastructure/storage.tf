# The store. What is old and needed by nobody is removed by `python -m model_registry.prune`, which reads what
# the registry needs (docs/operate/retention.md). No rule here deletes an object that is in place: a rule knows
# names and ages only, and the model in use may be the oldest of all.
resource "google_storage_bucket" "store" {
  name     = var.bucket_name
  location = var.region
  labels   = local.labels

  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"
  force_destroy               = var.delete_store_with_everything

  # What was replaced or deleted by mistake can be brought back for some days.
  versioning {
    enabled = true
  }

  # Versions do that already; both would be billed.
  soft_delete_policy {
    retention_duration_seconds = 0
  }

  lifecycle_rule {
    action {
      type = "Delete"
    }
    condition {
      with_state                 = "ARCHIVED"
      days_since_noncurrent_time = var.noncurrent_days
    }
  }

  lifecycle_rule {
    action {
      type = "AbortIncompleteMultipartUpload"
    }
    condition {
      age = 7
    }
  }

  depends_on = [google_project_service.api]
}

# Dataflow's temporary files: of no use once their job has ended, and none takes days.
resource "google_storage_bucket" "temp" {
  name     = "${var.bucket_name}-temp"
  location = var.region
  labels   = local.labels

  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"
  force_destroy               = true

  soft_delete_policy {
    retention_duration_seconds = 0
  }

  lifecycle_rule {
    action {
      type = "Delete"
    }
    condition {
      age = 7
    }
  }

  depends_on = [google_project_service.api]
}

resource "google_artifact_registry_repository" "images" {
  repository_id = "${var.account_prefix}-images"
  location      = var.region
  format        = "DOCKER"
  description   = "Images of Airflow, of the data job and of TPU VMs. Settings name them by digest."
  labels        = local.labels

  docker_config {
    immutable_tags = true
  }

  depends_on = [google_project_service.api]
}
