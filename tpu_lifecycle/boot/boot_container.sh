#!/bin/bash
# Startup script of a TPU VM whose Python is in a container image: pulls the image, runs boot.py in it, starts
# that again when it ends, and gives the TPU back when it cannot run.
#
# It runs at every boot, as root, and needs bash, curl, sed, GNU coreutils and Docker. What it must know is in the
# attributes of the node. They reach commands as single quoted words only, and arithmetic only once checked.
set -u
export LC_ALL=C # for the ranges in patterns

readonly METADATA=${GCE_METADATA_HOST:-metadata.google.internal}
readonly CONTAINER=tpu-agent
readonly IMAGE_PATTERN='^[a-z0-9][a-z0-9._:/-]*@sha256:[0-9a-f]{64}$'
readonly GOOGLES_REGISTRIES='^([a-z0-9-]+-docker\.pkg\.dev|([a-z]+\.)?gcr\.io)$'
readonly LONGEST_PAUSE=60
readonly DOCKER_SECONDS=60       # for everything that is quick
readonly PULL_SECONDS=1200       # some GB, within the region
readonly STOP_SECONDS=60         # the agent gives a job 25 to save its checkpoint
readonly LAST_RESORT_AFTER=600   # of the expiry: what runs in the container has had ten minutes

child=''     # what is waited for, if anything
stopping=''  # not empty: SIGTERM was received

# Writes a line to the VM's log.
say() {
  printf 'startup: %s\n' "$*" >&2
}

# Prints a value of the metadata server, nothing where there is none. A server that does not answer is asked again
# for ever: without it there is no token, so nothing else could be done.
metadata() {
  local pause=1 answer
  while :; do
    answer=$(curl --silent --show-error --noproxy '*' --max-time 60 --header 'Metadata-Flavor: Google' \
      --write-out '\n%{http_code}' "http://$METADATA/computeMetadata/v1/instance/$1")
    case ${answer##*$'\n'} in
      200) printf '%s' "${answer%$'\n'*}" && return ;;
      404) return ;;
      *) say "the metadata server does not tell $1; asking again in $pause s" ;;
    esac
    sleep "$pause"
    pause=$(longer "$pause")
  done
}

# Prints an attribute that the node must have been created with.
attribute() {
  local value
  value=$(metadata "attributes/$1")
  [[ -n $value ]] || say "the node has no metadata '$1'"
  printf '%s' "$value"
}

# Prints the access token of the VM's service account, nothing where there is no account.
token() {
  metadata service-accounts/default/token | sed -n 's/.*"access_token" *: *"\([^"]*\)".*/\1/p'
}

# Prints the pause after this one.
longer() {
  echo $(($1 * 2 < LONGEST_PAUSE ? $1 * 2 : LONGEST_PAUSE))
}

# Runs a command and returns its exit code. SIGTERM to this script goes to the command.
run() {
  "$@" &
  child=$!
  local code
  [[ -z $stopping ]] || on_sigterm # it came before there was a child
  wait "$child"
  code=$?
  while kill -0 "$child" 2>/dev/null; do # a signal ends the waiting, not the command
    wait "$child"
    code=$?
  done
  child=''
  return "$code"
}

# Takes note that the VM goes down.
on_sigterm() {
  stopping=yes
  [[ -z $child ]] || kill -TERM "$child" 2>/dev/null
}

# Prints the moment at which a VM on which nothing runs is of no use any more: nobody can renew its lease, as the
# switch is not there to see it.
due() {
  echo $((useless_since + lease_timeout < expires ? useless_since + lease_timeout : expires))
}

# Gets the image onto this VM, unless an earlier boot has; says why it cannot.
pull_image() {
  if [[ ! $image =~ $IMAGE_PATTERN ]]; then
    say "container-image '$image' is refused: name it REGISTRY/PATH@sha256:DIGEST in tpu.container_image"
    return 1
  fi
  if ! command -v docker >/dev/null; then
    say 'there is no docker on PATH: set tpu.runtime_version to a version that has it'
    return 1
  fi
  timeout "$DOCKER_SECONDS" docker image inspect "$image" >/dev/null 2>&1 && return
  # A configuration of its own, removed with the token in it; no helper of the VM's sees that.
  local -x DOCKER_CONFIG=$work/registry
  local host=${image%%/*} left code
  rm -rf "$DOCKER_CONFIG" && mkdir "$DOCKER_CONFIG" || return
  if [[ $host =~ $GOOGLES_REGISTRIES ]]; then # the VM's token is shown to nobody else
    token | timeout "$DOCKER_SECONDS" docker login --username oauth2accesstoken --password-stdin "https://$host" \
      >/dev/null || say "no login to $host: set tpu.service_account to an account that may read its images"
  fi
  left=$(($(due) - EPOCHSECONDS))
  left=$((left > PULL_SECONDS ? PULL_SECONDS : left > 1 ? left : 1))
  run timeout --kill-after=10 "$left" docker pull --quiet "$image" >/dev/null
  code=$?
  rm -rf "$DOCKER_CONFIG"
  ((code == 0)) || say "$image could not be pulled (exit code $code)"
  return "$code"
}

# Runs boot.py in the container, by the image's own entry point, until it ends; returns its exit code. Whatever
# hangs, this ends some time after the expiry. Only root may use a TPU's devices.
run_container() {
  timeout "$DOCKER_SECONDS" docker rm --force "$CONTAINER" >/dev/null 2>&1 # an earlier boot's
  run timeout --kill-after="$((2 * STOP_SECONDS))" "$((expires + LAST_RESORT_AFTER - EPOCHSECONDS))" \
    docker run --name "$CONTAINER" --rm --pull never --user 0 --privileged --network host \
    --stop-timeout "$STOP_SECONDS" --env GCE_METADATA_HOST --env GCE_METADATA_IP --env REPRETRAIN_BOOT_BEGAN \
    --workdir "$folder" --volume "$work:$work" "$image" "$work/boot.py"
}

# Asks the TPU service to delete this VM's TPU, request by request until it agrees to one, as boot.py would.
give_back() {
  local url code
  for url in "${deletions[@]}"; do
    url=${url//"{node}"/$node_id}
    # The token goes through a pipe: a command line can be read by everybody on the VM.
    code=$(printf 'Authorization: Bearer %s\n' "$(token)" | curl --silent --show-error --noproxy '*' --globoff \
      --max-time 60 --request DELETE --header @- --user-agent bert-repretraining/vm --output /dev/null \
      --write-out '%{http_code}' "$url")
    say "nothing runs on this VM, so it deletes its own TPU: $url: $code"
    [[ $code != 2?? ]] || return
  done
}

# Reads what the node was created with, or ends the script.
read_attributes() {
  image=$(attribute container-image)
  tpu_name=$(attribute tpu-name)
  lease_timeout=$(attribute lease-timeout)
  lease_timeout=${lease_timeout%.*} # whole seconds
  expires_at=$(attribute expires-at)
  if [[ -z $image || -z $tpu_name || -z $expires_at || ! $lease_timeout =~ ^(0|[1-9][0-9]{0,8})$ ]] ||
    ! expires=$(date --date="$expires_at" +%s); then
    say 'this node was not made for this script: nothing is run'
    exit 1
  fi
  node_id=$(metadata attributes/tpu-env | sed -n "s/^NODE_ID: *'\{0,1\}\([^' ]*\).*/\1/p")
  node_id=${node_id:-${tpu_name##*/}}
  mapfile -t deletions < <(metadata attributes/tpu-deletions)
  mkdir -p "$work"
  attribute boot-script >"$work/boot.py"
}

main() {
  umask 077
  export REPRETRAIN_BOOT_BEGAN=$EPOCHSECONDS # for the agent's account of the time
  # As boot.py has it: the platform starts the script in /, which is no place for files.
  folder=$(pwd -P)
  if [[ $folder == / ]]; then work=/var/lib/tpu-agent; else work=$folder/tpu-agent; fi
  read_attributes
  trap on_sigterm TERM
  local pause=1 started code
  useless_since=$EPOCHSECONDS
  while [[ -z $stopping ]]; do
    if ((EPOCHSECONDS >= $(due))); then
      if [[ -z ${deletions[*]} ]]; then
        say 'an emulator takes no such requests: its TPU is left to others'
        exit 1
      fi
      give_back
      pause=$LONGEST_PAUSE
    elif pull_image && [[ -z $stopping ]]; then
      started=$EPOCHSECONDS
      run_container
      code=$?
      if ((EPOCHSECONDS - started > LONGEST_PAUSE)); then
        pause=1 useless_since=$EPOCHSECONDS
      fi
      [[ -n $stopping ]] || say "the container ended with exit code $code; it is started again in $pause s"
    fi
    [[ -n $stopping ]] || run sleep "$pause"
    pause=$(longer "$pause")
  done
  say 'the VM goes down'
}

main
