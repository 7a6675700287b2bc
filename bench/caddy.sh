#!/bin/bash
# Caddy with the module weircaddy, with and without a limit: requests per second of wrk, in turns.
# Run it on a machine that is otherwise quiet: bench/caddy.sh [ROUNDS] [SECONDS of each measurement]
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-5} seconds=${2:-10}
dir=$(mktemp -d)
trap 'kill "${pid:-}" 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$dir"' EXIT
(cd weircaddy && GOWORK=off go build -o "$dir/caddy" ./cmd/caddy)
export HOME=$dir XDG_DATA_HOME=$dir XDG_CONFIG_HOME=$dir
echo '<p>hello</p>' >"$dir/index.html"
cat >"$dir/Caddyfile" <<CADDYFILE
{
	admin off
	auto_https off
	log {
		level ERROR
	}
}
http://127.0.0.1:23980 {
	respond hello
}
http://127.0.0.1:23981 {
	weir {
		limit per-client {
			key {client_ip}
			rate 1000000000/s
			burst 1000000
		}
	}
	respond hello
}
http://127.0.0.1:23982 {
	root $dir
	file_server
}
http://127.0.0.1:23983 {
	root $dir
	weir {
		limit per-client {
			key {client_ip}
			rate 1000000000/s
			burst 1000000
		}
	}
	file_server
}
CADDYFILE
"$dir/caddy" run --config "$dir/Caddyfile" >"$dir/log" 2>&1 &
pid=$!
for _ in $(seq 100); do curl -sf -o /dev/null http://127.0.0.1:23980/ && break; sleep 0.1; done
measure() { # PORT
	wrk -t1 -c64 -d"${seconds}s" "http://127.0.0.1:$1/" >"$dir/out"
	if grep -q Non-2xx "$dir/out"; then cat "$dir/out" "$dir/log" >&2; exit 1; fi
	awk '/Requests\/sec/ {print $2}' "$dir/out"
}
for what in respond file_server; do
	case $what in respond) plain=23980 ;; *) plain=23982 ;; esac
	for _ in $(seq "$rounds"); do
		a=$(measure $plain) b=$(measure $((plain + 1)))
		echo "$what: $a requests/s without weir, $b with it: $(awk "BEGIN {printf \"%.2f\", $b / $a}") of it"
	done
done
