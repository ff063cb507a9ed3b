#!/bin/bash
# The keeper alone, without workers, as an unprivileged user, in a rig of its own: what it leaves behind
# whatever the order of starts, stops and kills, and what it does when database and host disagree.
# shellcheck disable=SC2016,SC2317 # yes calls by name, and evaluates
set -uo pipefail
# shellcheck source=tests/lib/rig.bash
source "$(dirname "$(readlink -f "$0")")/../lib/rig.bash"
rig_enter "$@"
cd / || exit

n=0
failed=0
ok() {
	n=$((n + 1))
	if [[ $1 == 0 ]]; then echo "ok $n - $2"; else echo "not ok $n - $2"; failed=1; fi
}
yes() { local what=$1; shift; "$@" >/dev/null 2>&1; ok $? "$what"; }
says() { [[ $1 == "$2" ]]; ok $? "$3"; [[ $1 == "$2" ]] || echo "# '$1' is not '$2'"; }

keeper_start() {
	setpriv --reuid nobody --regid nogroup --groups libvirt,kvm "$BUILD/sbx-keeper" >>"$RIG/log/keeper" 2>&1 &
	RIG_KEEPER=$!
}
keeper_kill() {
	kill -9 "$RIG_KEEPER"
	wait "$RIG_KEEPER" 2>/dev/null
}
# What a worker does for sandbox_start; prints the box's id. box SLOT IMAGE
box() {
	rig_sql <<-SQL
		set search_path = sbx;
		with m as (insert into machines (id, host, slot, unit, vcpu, memory_mib, disk_gib, control_address, user_address)
				select gen_random_uuid(), 'righost', $1, unit, vcpu, memory_mib, disk_gib,
					'100.64.0.0'::inet + $1 * 4 + 1, '100.64.0.0'::inet + $1 * 4 + 3
				from images where name = '$2' and is_current returning *),
			b as (insert into boxes (tenant_id, id, machine_id, op, environment)
				select t.id, 'b' || translate(left(md5(random()::text), 26), '0189', 'ghij'), m.id, 'starting', '$2'
				from tenants t, m returning id),
			o as (insert into ops (host, machine_id, verb, generation, caused_by)
				select host, id, 'start', generation, 'test' from m)
		select id from b;
	SQL
}
stop() {
	rig_sql -c "set search_path = sbx; select stop_box((select tenant_id from boxes where id = '$1'), '$1', 'test', 'bye')" \
		>/dev/null
}
state() { rig_sql -c "select state from sbx.boxes where id = '$1'"; }
is() { [[ $(state "$1") == "$2" ]]; }
machine() { rig_sql -c "select machine_id from sbx.boxes where id = '$1'"; }
health() { rig_sql -c 'select health from sbx.hosts'; }
domain_is() { [[ $(virsh domstate "$1" 2>&1) == "$2"* ]]; }
leftovers() {
	virsh list --all --name | grep .
	find "$SBX_STATE_DIR/volumes" "$SBX_STATE_DIR/serial" -type f
	ip -o link | grep -o 'sr0[cu][0-9]*'
	pgrep -f '[q]emu-system.*sbx-rig'
}
nothing_left() { [[ -z $(leftovers) ]]; }

rig_libvirt_start
rig_pg_start
rig_images_register
rig_sql -c "insert into sbx.tenants (name) values ('t')" -c "insert into sbx.images
	(unit, name, vcpu, memory_mib, disk_gib, bytes, protocol) values ('nothing-1', 'nothing', 1, 256, 1, 1, 1)"
keeper_dir=$SBX_STATE_DIR/keeper
install -d -o nobody "$keeper_dir" "$SBX_RUN_DIR"
chown nobody "$SBX_STATE_DIR" "$SBX_MASTER_KEY_FILE"
export SBX_RECONCILE_S=2 SBX_UNKNOWN_KEEP_S=86400
keeper_start
yes "the keeper registers its host" rig_wait 10 eval '[[ $(rig_sql -c "select accel from sbx.hosts") =~ ^(tcg|kvm)$ ]]'
out=$("$BUILD/sbx-keeper" 2>&1)
[[ $? == 1 && $out == *"Another keeper runs"* ]]
ok $? "a second keeper of the host refuses to start"

b=$(box 1 base)
yes "a box becomes ready" rig_wait 30 is "$b" ready
m=$(machine "$b")
says "$(stat -c '%a %u' "$SBX_STATE_DIR/volumes/$m."{qcow2,conf} | sort -u)" "600 900001" \
	"its volumes belong to its uid alone"
says "$(stat -Lc '%U %A' "$SBX_STATE_DIR"/images/current/base/{kernel,initrd,root.img} | cut -c1-14 | sort -u)" \
	"root -rw-r--r-" "what machines share stays root's, and no machine can write it"
says "$(ps -o uid= -p "$(pgrep -f '[q]emu-system.*sbx-rig')" | tr -d ' ')" 900001 "its QEMU runs under its uid"
says "$(rig_sql -c "select string_agg(kind, ' ' order by id) from sbx.box_events")" "ready" "with its event"

rig_sql -c "set session_replication_role = replica" -c "create table sbx.aside as select * from sbx.machines" \
	-c "delete from sbx.machines"
yes "a domain that the database does not know is paused" rig_wait 10 domain_is "$m" paused
yes "and reported" rig_wait 10 eval '[[ $(health) == "1 running machine(s) are not in this database"* ]]'
rig_sql -c "set session_replication_role = replica" -c "insert into sbx.machines select * from sbx.aside"
yes "known again, it runs on" rig_wait 10 domain_is "$m" running
yes "and answers" rig_wait 5 curl -sf -m 2 http://100.64.0.5:7080/healthz
yes "and the report ends" rig_wait 10 eval '[[ -z $(health) ]]'

kill -9 "$(pgrep -f '[q]emu-system.*sbx-rig')"
yes "a machine that dies interrupts its box" rig_wait 3 is "$b" interrupted
says "$(rig_sql -c "select reason_code from sbx.boxes where id = '$b'")" machine_lost "with the reason"
says "$(rig_sql -c "select ended_at = last_seen_at from sbx.box_runs where box_id = '$b'")" t \
	"its run ends where it was last seen"
yes "and leaves nothing" rig_wait 5 nothing_left

for delay in 0 0.1 0.3 0.5 1.2; do
	b=$(box 2 base)
	sleep $delay
	stop "$b"
	yes "a stop $delay s into a start" rig_wait 10 is "$b" terminated
	yes "leaves nothing" rig_wait 3 nothing_left
done

for delay in 0.05 0.3 0.6; do
	b=$(box 3 base)
	sleep $delay
	keeper_kill
	keeper_start
	yes "kill -9 of the keeper $delay s into a start: the next finishes it" rig_wait 30 is "$b" ready
	stop "$b"
	sleep 0.1
	keeper_kill
	keeper_start
	yes "and into the stop" rig_wait 20 is "$b" terminated
	yes "nothing is left" rig_wait 5 nothing_left
done

b=$(box 4 base)
sleep 0.6
start_ms=$(date +%s%3N)
rig_keeper_stop
(($(date +%s%3N) - start_ms < 3000))
ok $? "SIGTERM ends the keeper at once, in the middle of a start"
says "$(rig_sql -c 'select state, keeper is null from sbx.ops order by id desc limit 1')" "queued|t" \
	"and gives the op back"
keeper_start
yes "the next keeper finishes it" rig_wait 30 is "$b" ready

b2=$(box 5 nothing)
yes "a start that cannot work ends the box" rig_wait 10 is "$b2" interrupted
says "$(rig_sql -c "select reason_code from sbx.boxes where id = '$b2'")" start_failed "with the reason"
says "$(rig_sql -c "select o.state, m.state from sbx.ops o join sbx.machines m on m.id = o.machine_id
	where m.slot = 5")" "failed|gone" "the op failed and its machine is gone"

"$RIG_ROOT/tests/it/pg" restart "$RIG/pg"
stop "$b"
yes "a restart of the database is survived" rig_wait 20 is "$b" terminated
yes "nothing is left at the end" rig_wait 5 nothing_left
says "$(rig_sql -c "select count(*) from sbx.machines where state <> 'gone'")" 0 "every machine is gone"
says "$(rig_sql -c "select count(*) from sbx.ops where state in ('queued', 'running')")" 0 "no op is open"
says "$(rig_sql -c "select count(*) from sbx.box_runs where ended_at is null")" 0 "no run is open"

rig_keeper_stop
[[ $failed == 0 ]] || grep -E "level=(warn|error)" "$RIG/log/keeper" | grep -v evt=accel | sed "s/^/# /"
rig_libvirt_stop
rig_pg_stop
echo "1..$n"
exit $failed
