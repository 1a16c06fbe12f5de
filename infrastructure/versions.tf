# What this needs. `terraform init` downloads the provider and writes .terraform.lock.hcl with its hashes:
# commit that file where you keep your variables.
terraform {
  required_version = ">= 1.9.0, < 2.0.0"

  required_providers {
    google = {
      source  = "hashicorp/google"
      version = "7.36.0"
    }
  }
}

provider "google" {
  project = var.project_id
  region  = var.region

  # The budgets' API asks who pays for the call when a person's own credentials make it.
  user_project_override = true
  billing_project       = var.project_id
}
