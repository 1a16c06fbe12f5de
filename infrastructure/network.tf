# TPU VMs and the data job's machines have private addresses only, and there is no NAT: they reach Google's APIs
# (Private Google Access) and nothing else, and nothing reaches them.
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
  description   = "Nothing may connect to a machine of this network."
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

# Of a slice of several hosts worker 0 drives the chips through the TPU runtime of each host (8470 and
# those next to it), and hosts that train together without TPUs meet on ports of TF_CONFIG.
resource "google_compute_firewall" "between_hosts" {
  count = var.tpu_slices_of_several_hosts ? 1 : 0

  name          = "${var.account_prefix}-between-hosts"
  description   = "Machines of this subnetwork may connect to each other."
  network       = google_compute_network.pipeline.id
  direction     = "INGRESS"
  priority      = 1000
  source_ranges = [google_compute_subnetwork.pipeline.ip_cidr_range]

  allow {
    protocol = "tcp"
  }
}
