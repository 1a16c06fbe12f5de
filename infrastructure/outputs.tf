# What the pipeline has to be told, in the form in which it takes it.
locals {
  store_uri   = "gs://${google_storage_bucket.store.name}/${var.store_prefix}"
  preset_file = "${replace(var.owner, "-", "_")}.toml"
  slice_tag   = "${var.account_prefix}-tpu-vm"

  environment = {
    REPRETRAIN_STORE_URI = local.store_uri
    REPRETRAIN_OWNER     = var.owner
    GOOGLE_CLOUD_PROJECT = var.project_id
  }

  preset_note = "# Written by Terraform, and again each time: where this installation rents and as whom. Do not edit."
  preset_lines = concat(
    [
      "",
      "[tpu]",
      "zones = ${jsonencode(var.tpu_zones)}",
      "network = ${jsonencode(google_compute_network.pipeline.id)}",
      "subnetwork = ${jsonencode(google_compute_subnetwork.pipeline.id)}",
      "service_account = ${jsonencode(google_service_account.tpu_vm.email)}",
    ],
    var.tpu_slices_of_several_hosts ? ["network_tags = ${jsonencode([local.slice_tag])}"] : [],
    var.trainer_image == "" ? [] : ["container_image = ${jsonencode(var.trainer_image)}"],
    var.data_job_image == "" ? [] : [
      "",
      "[beam]",
      "runner = \"DataflowRunner\"",
      "region = ${jsonencode(var.region)}",
      "temp_location = ${jsonencode("gs://${google_storage_bucket.temp.name}/dataflow")}",
      "sdk_container_image = ${jsonencode(var.data_job_image)}",
      "service_account_email = ${jsonencode(google_service_account.data_job.email)}",
      "subnetwork = ${jsonencode(google_compute_subnetwork.pipeline.name)}",
    ],
    [""],
  )
}

output "preset" {
  description = "Preset for this installation: `terraform output -raw preset > FILE.toml`, and REPRETRAIN_PRESET=FILE.toml."
  value       = join("\n", concat([local.preset_note, "extends = ${jsonencode(var.base_preset)}"], local.preset_lines))
}

output "finetuning_preset" {
  description = "The same for fine-tuning runs, and REPRETRAIN_FINETUNING_PRESET=FILE.toml. Their tasks belong into a preset that extends it."
  value       = join("\n", concat([local.preset_note, "extends = ${jsonencode(var.base_finetuning_preset)}"], local.preset_lines))
}

output "environment" {
  description = "Environment of every Airflow component, a variable a line: `terraform output -raw environment`."
  value       = join("\n", concat([for name, value in local.environment : "${name}=${value}"], [""]))
}

output "airflow_service_account" {
  description = "Account that Airflow acts as: attach it to the machine, or impersonate it."
  value       = google_service_account.airflow.email
}

output "tpu_vm_service_account" {
  description = "Setting tpu.service_account."
  value       = google_service_account.tpu_vm.email
}

output "data_job_service_account" {
  description = "Setting beam.service_account_email."
  value       = google_service_account.data_job.email
}

output "image_repository" {
  description = "Where images are pushed to: `docker push REPOSITORY/NAME`."
  value       = "${var.region}-docker.pkg.dev/${var.project_id}/${google_artifact_registry_repository.images.name}"
}

output "composer_folders" {
  description = "Cloud Composer's folder for DAGs and address of its UI; empty without it."
  value       = [for one in google_composer_environment.airflow : { dags = one.config[0].dag_gcs_prefix, ui = one.config[0].airflow_uri }]
}
