#!/usr/bin/env bash
# Measures lockkeeper beside ZooKeeper and etcd, three members each, on this machine.
# docs/performance.md describes the measurements.
#
#   jepsen/compare.sh [flags]     jepsen/compare.sh -h shows them
#
# Missing programs are installed (Debian, apt-get). The data go below $TMPDIR, or /tmp: it has to be
# a disk, not memory.
set -euo pipefail
sources=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

need=()
[ -e /usr/share/java/zookeeper.jar ] || need+=(zookeeper)
command -v jcmd >/dev/null || need+=(default-jdk-headless)
command -v etcd >/dev/null || need+=(etcd-server)
if [ ${#need[@]} -gt 0 ]; then
	echo "installing ${need[*]}" >&2
	sudo=()
	[ "$(id -u)" = 0 ] || sudo=(sudo)
	export DEBIAN_FRONTEND=noninteractive
	"${sudo[@]}" apt-get -qq update >&2
	"${sudo[@]}" apt-get -qq install --yes --no-install-recommends "${need[@]}" >&2
	# The package starts a server of its own, which would be in the way.
	case " ${need[*]} " in *" etcd-server "*) "${sudo[@]}" systemctl disable --now etcd >&2 || "${sudo[@]}" service etcd stop >&2 || true ;; esac
fi

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
go build -C "$sources" -o "$dir/lockkeeper" ./cmd/lockkeeper
go build -C "$sources/jepsen/compare" -o "$dir/compare" .
# Not exec: the trap above removes the programs. A signal that ends this script ends compare, which
# ends its processes.
"$dir/compare" -binary "$dir/lockkeeper" -sources "$sources" "$@" &
pid=$!
trap 'kill -TERM $pid 2>/dev/null || true' INT TERM HUP
status=0
wait $pid || status=$?
while kill -0 $pid 2>/dev/null; do # a signal has ended the first wait
	wait $pid || status=$?
done
exit $status
