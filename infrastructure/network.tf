# TPU VMs and the data job's machines have private addresses only, and there is no NAT: they reach Google's APIs
# (Private Google Access) and nothing else. Nothing reaches them but what two rules below allow, if they are asked for.
resource "google_compute_network" "pipeline" {
  name                    = "${var.account_prefix}-repretraining"
  description             = "TPU VMs and the data job of re-pretraining."
  auto_create_subnetworks = false

  depends_on = [google_project_service.api]
}

resource "google_compute_subnetwork" "pipeline" {
  name                     = "${var.account_prefix}-repretraining"
  description              = "The only subnetwork; private addresses."
  network                  = google_compute_network.pipeline.id
  region                   = var.region
  ip_cidr_range            = var.subnetwork_range
  private_ip_google_access = true
}

# A network refuses what no rule allows. This rule says so, and writes down who tried.
resource "google_compute_firewall" "deny_ingress" {
  name          = "${var.account_prefix}-deny-ingress"
  description   = "Nothing may connect to a machine of this network but by a rule of higher priority."
  network       = google_compute_network.pipeline.id
  direction     = "INGRESS"
  priority      = 65534
  source_ranges = ["0.0.0.0/0"]

  deny {
    protocol = "all"
  }

  log_config {
    metadata = "EXCLUDE_ALL_METADATA"
  }
}

# The hosts of a slice meet on the ports of TF_CONFIG (docs/explain/hosts.md), and libtpu connects them on ports of its own.
# Which those are is not documented, so all ports of TCP are open; but only from one TPU VM to another. Their tag is
# written into the preset, as tpu.network_tags.
resource "google_compute_firewall" "between_hosts" {
  count = var.tpu_slices_of_several_hosts ? 1 : 0

  name        = "${var.account_prefix}-between-hosts"
  description = "TPU VMs may connect to each other."
  network     = google_compute_network.pipeline.id
  direction   = "INGRESS"
  priority    = 1000
  source_tags = [local.slice_tag]
  target_tags = [local.slice_tag]

  allow {
    protocol = "tcp"
  }
}

# For a look at a TPU VM whose start script fails. Google's Identity-Aware Proxy connects from this range alone, and
# asks who it is: https://cloud.google.com/iap/docs/using-tcp-forwarding
resource "google_compute_firewall" "ssh_through_iap" {
  count = var.ssh_through_iap ? 1 : 0

  name          = "${var.account_prefix}-ssh-through-iap"
  description   = "People may reach SSH through Identity-Aware Proxy."
  network       = google_compute_network.pipeline.id
  direction     = "INGRESS"
  priority      = 1000
  source_ranges = ["35.235.240.0/20"]

  allow {
    protocol = "tcp"
    ports    = ["22"]
  }
}
