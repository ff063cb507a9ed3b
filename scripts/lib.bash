# What up, down and check share: where an instance lives, and how its daemons are started and stopped.
# An instance is named by SBX_INSTANCE; `main` has no suffix in its paths.

SBX_INSTANCE=${SBX_INSTANCE:-main}
if [[ ! $SBX_INSTANCE =~ ^[a-z][a-z0-9]{0,15}$ ]]; then
	echo "SBX_INSTANCE must be lower-case letters and digits" >&2
	exit 2
fi
suffix=$([ "$SBX_INSTANCE" = main ] || echo "-$SBX_INSTANCE")
ETC=/etc/sbx$suffix
STATE=/var/lib/sbx$suffix
RUN=/run/sbx$suffix
APP=$STATE/app
LOG=$STATE/log
export SBX_CONFIG=$ETC/sbx.conf
REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
PG_BIN=/usr/lib/postgresql/15/bin

say() { printf '%s\n' "$*"; }
die() {
	printf 'error: %s\n' "$*" >&2
	exit 1
}

# A setting of the instance: the environment first, then its file, then the built-in default.
conf() { "$APP/bin/sbx" config "$1"; }

has_systemd() { [ -d /run/systemd/system ]; }

# Waits until a command succeeds, at most so many seconds: it looks again ten times a second.
wait_for() {
	local seconds=$1 what=$2 end
	shift 2
	end=$((SECONDS + seconds))
	until "$@" >/dev/null 2>&1; do
		[ "$SECONDS" -lt "$end" ] || die "$what did not come up within $seconds s; see $LOG"
		sleep 0.1
	done
}

pid_alive() { # NAME: the supervisor of that daemon runs
	local pid
	pid=$(cat "$RUN/$1.pid" 2>/dev/null) && [ -n "$pid" ] && grep -qs "scripts/daemon" "/proc/$pid/cmdline"
}

# daemon_start NAME USER:GROUP[:GROUPS] CMD…: without systemd. A small loop keeps it running; its own pid is
# in NAME.pid, that of the program in NAME.child.
daemon_start() {
	local name=$1 who=$2
	shift 2
	pid_alive "$name" && return 0
	setsid bash "$REPO/scripts/daemon" "$RUN" "$LOG/$name.log" "$name" "$who" "$@" </dev/null >/dev/null 2>&1 &
	wait_for 10 "$name" pid_alive "$name"
}

daemon_stop() { # NAME
	local pid
	pid=$(cat "$RUN/$1.pid" 2>/dev/null) || return 0
	if pid_alive "$1"; then
		kill -TERM "$pid" 2>/dev/null || true
		local end=$((SECONDS + 40))
		while pid_alive "$1" && [ "$SECONDS" -lt "$end" ]; do sleep 0.05; done
	fi
	rm -f "$RUN/$1.pid" "$RUN/$1.child"
}

# daemon_fresh NAME FILE…: started after each of the files last changed.
daemon_fresh() {
	local name=$1 file
	shift
	pid_alive "$name" || return 1
	for file in "$@"; do
		[ ! "$file" -nt "$RUN/$name.pid" ] || return 1
	done
}

psql_as() { # ROLE SQL
	"$PG_BIN/psql" -X -q -t -A -v ON_ERROR_STOP=1 -h "$RUN/pg" -U "$1" -d "${3:-sbx}" -c "$2"
}
