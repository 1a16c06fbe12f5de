# Mail when money goes. A budget stops nothing, and its figures come hours late: what ends a run in time are
# budget.max_hours, budget.max_chip_hours and the reaper.
data "google_project" "this" {
  project_id = var.project_id

  depends_on = [google_project_service.api]
}

resource "google_monitoring_notification_channel" "budget" {
  display_name = "Budget of re-pretraining"
  type         = "email"
  user_labels  = local.labels

  labels = {
    email_address = var.alert_email
  }

  depends_on = [google_project_service.api]
}

resource "google_billing_budget" "month" {
  billing_account = var.billing_account
  display_name    = "bert-repretraining ${var.owner}"

  budget_filter {
    projects        = ["projects/${data.google_project.this.number}"]
    calendar_period = "MONTH"
  }

  # No currency: the billing account's own.
  amount {
    specified_amount {
      units = tostring(var.monthly_budget)
    }
  }

  threshold_rules {
    threshold_percent = 0.5
  }
  threshold_rules {
    threshold_percent = 0.9
  }
  threshold_rules {
    threshold_percent = 1.0
  }
  threshold_rules {
    threshold_percent = 1.0
    spend_basis       = "FORECASTED_SPEND"
  }

  all_updates_rule {
    monitoring_notification_channels = [google_monitoring_notification_channel.budget.id]
  }

  depends_on = [google_project_service.api]
}
