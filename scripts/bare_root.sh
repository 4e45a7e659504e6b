#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Proves the README's promise: makes a bare Debian 12 root in a scratch folder, clones this repository into it, as its
# files are now, and runs there the README's two commands, or those given as arguments. Each argument is one command
# line. With --results what scripts/test.sh has left there in build/results is put into DIR.
#
#   scripts/bare_root.sh                      # scripts/demo.sh, then scripts/test.sh
#   scripts/bare_root.sh [--results DIR] [COMMAND...]
#
# Runs as root on Debian; the scratch folder (in $TMPDIR, a few GB) goes away at the end. What this machine needs to reach
# the network goes along: apt sources, apt's and pip's settings, CA certificates of its own and proxies.
set -euo pipefail
cd "$(dirname "$0")/.."

suite=bookworm
results=
if [[ ${1:-} == --results ]]; then
  [[ -n ${2:-} ]] || { echo "bare_root: --results needs a folder" >&2; exit 2; }
  results=$2
  shift 2
fi
commands=("$@")
((${#commands[@]} > 0)) || commands=(scripts/demo.sh scripts/test.sh)

if ((EUID != 0)) || ! command -v apt-get >/dev/null; then
  echo "bare_root: this needs Debian and root" >&2
  exit 1
fi
if ! command -v mmdebstrap >/dev/null; then
  apt-get -y -q -o DPkg::Lock::Timeout=300 update
  DEBIAN_FRONTEND=noninteractive apt-get -y -q -o DPkg::Lock::Timeout=300 --no-install-recommends install mmdebstrap
fi

scratch=$(mktemp -d "${TMPDIR:-/tmp}/fovea_bare_root.XXXXXX")
chmod 755 "$scratch"
# Everything is mounted in a namespace of its own, so nothing of this machine lies below.
trap 'rm -rf --one-file-system "$scratch"' EXIT
trap 'exit 130' INT TERM
root=$scratch/root

# This machine's apt sources, if they are of the same Debian; otherwise mmdebstrap's own.
sources=()
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
  if [[ -f $file ]] && grep -Eq "^[^#]*[[:space:]]$suite([[:space:]]|\$)" "$file"; then sources+=("$file"); fi
done
apt-config dump Acquire | grep -Ei '^Acquire::(https?|ForceIPv4|Check-(Valid-Until|Date)|Retries)\b' >"$scratch/apt.conf" || true

echo "bare_root: a bare Debian ($suite)"
if ! unshare --mount mmdebstrap --mode=root --variant=minbase --aptopt="$scratch/apt.conf" \
    --aptopt='Acquire::Retries "3"' "$suite" "$root" "${sources[@]}" >"$scratch/log" 2>&1; then
  tail -n 40 "$scratch/log" >&2
  echo "bare_root: mmdebstrap failed (its last lines are above)" >&2
  exit 1
fi

cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
if [[ -d /usr/local/share/ca-certificates ]]; then  # used once scripts/setup.sh has installed ca-certificates
  mkdir -p "$root/usr/local/share/ca-certificates"
  cp -rL /usr/local/share/ca-certificates/. "$root/usr/local/share/ca-certificates/"
fi
if grep -Eqs '^[^#]*https://' /dev/null "${sources[@]}"; then  # apt needs certificates before it can install them
  mkdir -p "$root/etc/ssl/certs"
  cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
fi
# Both are read there, the user's last.
mkdir -p "$root/etc/xdg/pip"
if [[ -f /etc/pip.conf ]]; then cp -L /etc/pip.conf "$root/etc/xdg/pip/pip.conf"; fi
for file in "$HOME/.pip/pip.conf" "${XDG_CONFIG_HOME:-$HOME/.config}/pip/pip.conf"; do
  if [[ -f $file ]]; then cp -L "$file" "$root/etc/pip.conf"; fi
done

# The repository may be another user's.
printf '[safe]\n\tdirectory = *\n' >"$scratch/gitconfig"
export GIT_CONFIG_GLOBAL=$scratch/gitconfig
git clone --quiet --no-hardlinks . "$root/fovea"
# What is not committed goes along.
git diff --name-only -z --no-renames --diff-filter=D HEAD | (cd "$root/fovea" && xargs -0 -r rm -f)
{
  git diff --name-only -z --no-renames --diff-filter=d HEAD
  git ls-files -z --others --exclude-standard
} | tar --null --files-from=- --create | tar --extract --no-same-owner --directory "$root/fovea"
echo "bare_root: cloned $(git -C "$root/fovea" log -1 --format='%h %s')"

# A clean environment but for what leads to the network.
environment=(HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 TERM=dumb)
for name in {http,https,ftp,all,no}_proxy {HTTP,HTTPS,FTP,ALL,NO}_PROXY PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_TRUSTED_HOST \
    PIP_CERT PIP_PROXY PIP_DEFAULT_TIMEOUT REQUESTS_CA_BUNDLE SSL_CERT_FILE; do
  if [[ -n ${!name:-} ]]; then environment+=("$name=${!name}"); fi
done

for command in "${commands[@]}"; do
  echo "bare_root: $command"
  # Processes and mounts end with the namespaces.
  unshare --mount --pid --fork --kill-child bash -s "$root" "$command" "${environment[@]}" <<'INSIDE' || code=$?
set -euo pipefail
root=$1 command=$2
shift 2
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
exec env -i "$@" chroot "$root" bash -c "cd /fovea && $command" </dev/null
INSIDE
  if [[ -n $results && -d $root/fovea/build/results ]]; then
    mkdir -p "$results"
    cp -r "$root/fovea/build/results/." "$results/"
  fi
  if ((${code:-0} != 0)); then
    echo "bare_root: '$command' failed with code $code" >&2
    exit "$code"
  fi
done
echo "bare_root: passed"
