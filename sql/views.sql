-- What operators read and call: schema admin. Views keep their columns: new ones are added at the end,
-- none is renamed or dropped (create or replace view refuses it), and tests/data/admin_views.txt has them.
-- Run by sbx_owner after every migration; views borrow the owner's rights.

create schema if not exists admin;
comment on schema admin is 'For operators: stable views and audited functions.';

create or replace view admin.tenants with (security_barrier) as
	select t.id, t.name, t.plan, p.max_boxes,
		(select count(*) from sbx.boxes b
			where b.tenant_id = t.id and b.state in ('claimed', 'ready', 'takeover'))::integer as live_boxes,
		(select count(*) from sbx.api_keys k where k.tenant_id = t.id and k.revoked_at is null
			and (k.expires_at is null or k.expires_at > now()))::integer as valid_keys,
		(select max(k.last_used_at) from sbx.api_keys k where k.tenant_id = t.id) as last_used_at,
		t.suspended_at, t.created_at
	from sbx.tenants t join sbx.plans p on p.name = t.plan;
comment on view admin.tenants is 'Customers, with what they use now.';
comment on column admin.tenants.id is 'Identity.';
comment on column admin.tenants.name is 'Name, unique.';
comment on column admin.tenants.plan is 'Plan.';
comment on column admin.tenants.max_boxes is 'How many boxes the plan allows at once.';
comment on column admin.tenants.live_boxes is 'How many boxes run or start now.';
comment on column admin.tenants.valid_keys is 'API keys that are neither revoked nor expired.';
comment on column admin.tenants.last_used_at is 'Last use of any of its keys.';
comment on column admin.tenants.suspended_at is 'When set, every key of the tenant is refused.';
comment on column admin.tenants.created_at is 'When the tenant was made.';

create or replace view admin.keys with (security_barrier) as
	select k.id, t.name as tenant, k.tenant_id, k.name, k.prefix, k.scope,
		case when k.revoked_at is not null then 'revoked'
			when k.expires_at <= now() then 'expired'
			when t.suspended_at is not null then 'suspended'
			else 'valid' end as state,
		k.created_at, k.expires_at, k.last_used_at, k.revoked_at
	from sbx.api_keys k join sbx.tenants t on t.id = k.tenant_id;
comment on view admin.keys is 'API keys, without their hashes.';
comment on column admin.keys.id is 'Identity.';
comment on column admin.keys.tenant is 'Name of the tenant.';
comment on column admin.keys.tenant_id is 'Whose key it is.';
comment on column admin.keys.name is 'What the owner calls it.';
comment on column admin.keys.prefix is 'First characters of the key.';
comment on column admin.keys.scope is 'full, agent (tools and boxes, no keys) or read.';
comment on column admin.keys.state is 'valid, revoked, expired, or suspended (its tenant is).';
comment on column admin.keys.created_at is 'When it was made.';
comment on column admin.keys.expires_at is 'Refused from then on; null = never.';
comment on column admin.keys.last_used_at is 'Last accepted use, to the minute.';
comment on column admin.keys.revoked_at is 'Refused since.';

create or replace view admin.hosts with (security_barrier) as
	select h.name, h.state, coalesce(h.last_seen_at > now() - interval '60 s', false) as is_alive,
		h.accel, h.cpus, h.memory_mib,
		coalesce(m.memory_mib, 0)::integer as used_memory_mib, coalesce(m.n, 0)::integer as machines,
		h.box_cidr, h.version, h.last_seen_at, h.health, h.created_at
	from sbx.hosts h left join (
		select host, sum(memory_mib) as memory_mib, count(*) as n
			from sbx.machines where state <> 'gone' group by host) m on m.host = h.name;
comment on view admin.hosts is 'Hosts that run boxes, and how full they are.';
comment on column admin.hosts.name is 'Host name, as configured.';
comment on column admin.hosts.state is 'active = takes new boxes; draining = keeps what runs.';
comment on column admin.hosts.is_alive is 'Whether its keeper gave a sign of life within 60 seconds.';
comment on column admin.hosts.accel is 'kvm, or tcg (emulation).';
comment on column admin.hosts.cpus is 'Processors.';
comment on column admin.hosts.memory_mib is 'Memory that boxes may take in all, MiB.';
comment on column admin.hosts.used_memory_mib is 'Memory of the machines that are there now, MiB.';
comment on column admin.hosts.machines is 'How many machines are there now.';
comment on column admin.hosts.box_cidr is 'Range of box addresses.';
comment on column admin.hosts.version is 'Version of the keeper.';
comment on column admin.hosts.last_seen_at is 'Last sign of life of the keeper.';
comment on column admin.hosts.health is 'Empty when all is well, else what is wrong.';
comment on column admin.hosts.created_at is 'When the host first appeared.';

create or replace view admin.images with (security_barrier) as
	select i.unit, i.name, i.is_current, i.vcpu, i.memory_mib, i.disk_gib, i.bytes, i.protocol,
		(select count(*) from sbx.machines m where m.unit = i.unit and m.state <> 'gone')::integer as machines,
		i.description, i.created_at
	from sbx.images i;
comment on view admin.images is 'Image units that boxes start from.';
comment on column admin.images.unit is 'Name of the unit, derived from its content.';
comment on column admin.images.name is 'What sandbox_start calls it.';
comment on column admin.images.is_current is 'New boxes of this name start from this unit.';
comment on column admin.images.vcpu is 'Virtual CPUs of a box.';
comment on column admin.images.memory_mib is 'Memory of a box, MiB.';
comment on column admin.images.disk_gib is 'Size of the root disk of a box, GiB.';
comment on column admin.images.bytes is 'Space that the unit takes on a host.';
comment on column admin.images.protocol is 'Version of the protocol that its boxd speaks.';
comment on column admin.images.machines is 'How many machines are laid over it now.';
comment on column admin.images.description is 'One line for people and agents.';
comment on column admin.images.created_at is 'When it was registered.';

create or replace view admin.machines with (security_barrier) as
	select m.id, m.host, m.slot, m.state, m.unit, i.name as image, m.vcpu, m.memory_mib, m.disk_gib,
		m.generation, m.epoch, m.user_network, m.control_address, m.user_address,
		b.id as box_id, t.name as tenant, m.created_at, m.running_at, m.gone_at
	from sbx.machines m join sbx.images i on i.unit = m.unit
		left join lateral (select x.id, x.tenant_id from sbx.boxes x where x.machine_id = m.id
			order by x.created_at desc limit 1) b on true
		left join sbx.tenants t on t.id = b.tenant_id;
comment on view admin.machines is 'Virtual machines of hosts, those that are gone too.';
comment on column admin.machines.id is 'Identity; also the UUID of the libvirt domain.';
comment on column admin.machines.host is 'Where it lives.';
comment on column admin.machines.slot is 'Number on its host.';
comment on column admin.machines.state is 'new = to be made; running = boxd has answered; gone.';
comment on column admin.machines.unit is 'Image unit its disk is laid over.';
comment on column admin.machines.image is 'Name of that image.';
comment on column admin.machines.vcpu is 'Virtual CPUs.';
comment on column admin.machines.memory_mib is 'Memory, MiB.';
comment on column admin.machines.disk_gib is 'Size of its root disk, GiB.';
comment on column admin.machines.generation is 'Raised by each new op.';
comment on column admin.machines.epoch is 'Key epoch of its boxd.';
comment on column admin.machines.user_network is 'Whether it has a network besides the control link.';
comment on column admin.machines.control_address is 'Address of boxd.';
comment on column admin.machines.user_address is 'Address that its commands use.';
comment on column admin.machines.box_id is 'The box on it; null = a spare.';
comment on column admin.machines.tenant is 'Whose box that is.';
comment on column admin.machines.created_at is 'When it was asked for.';
comment on column admin.machines.running_at is 'When boxd first answered.';
comment on column admin.machines.gone_at is 'When it was found or made gone.';

create or replace view admin.boxes with (security_barrier) as
	select b.id, t.name as tenant, b.tenant_id, b.state, b.op, b.environment, m.host, b.machine_id,
		b.started_from, b.note, k.prefix as key_prefix, k.name as key_name, b.client, b.services,
		b.external_base_url, b.idle_timeout_min, b.reason_code, b.reason,
		b.created_at, b.ready_at, b.last_used_at, b.ended_at,
		coalesce((select sum(extract(epoch from coalesce(r.ended_at, r.last_seen_at) - r.started_at))
			from sbx.box_runs r where r.tenant_id = b.tenant_id and r.box_id = b.id), 0)::bigint as run_s
	from sbx.boxes b join sbx.tenants t on t.id = b.tenant_id
		left join sbx.machines m on m.id = b.machine_id
		left join sbx.api_keys k on k.id = b.key_id;
comment on view admin.boxes is 'Boxes of all tenants, those that ended too.';
comment on column admin.boxes.id is 'Identity, also its name in scene URLs.';
comment on column admin.boxes.tenant is 'Name of the tenant.';
comment on column admin.boxes.tenant_id is 'Whose box it is.';
comment on column admin.boxes.state is 'claimed, ready, takeover, frozen, stopping, terminated or interrupted.';
comment on column admin.boxes.op is 'What is under way, or null.';
comment on column admin.boxes.environment is 'Image name it was started from.';
comment on column admin.boxes.host is 'Host of its machine.';
comment on column admin.boxes.machine_id is 'The machine under it.';
comment on column admin.boxes.started_from is 'spare or cold.';
comment on column admin.boxes.note is 'What is being done now, in the caller''s words.';
comment on column admin.boxes.key_prefix is 'First characters of the API key that started it.';
comment on column admin.boxes.key_name is 'Name of that key.';
comment on column admin.boxes.client is 'Program that started it, in its own words.';
comment on column admin.boxes.services is 'Declared services.';
comment on column admin.boxes.external_base_url is 'Where services live that the box does not run itself.';
comment on column admin.boxes.idle_timeout_min is 'Stop after so many minutes without use; null = never.';
comment on column admin.boxes.reason_code is 'Why it ended or was interrupted: a code.';
comment on column admin.boxes.reason is 'The same as a sentence.';
comment on column admin.boxes.created_at is 'When it was asked for.';
comment on column admin.boxes.ready_at is 'When it became usable.';
comment on column admin.boxes.last_used_at is 'Last tool call on it.';
comment on column admin.boxes.ended_at is 'When it became terminated or interrupted.';
comment on column admin.boxes.run_s is 'Seconds that it ran, up to the last sign of life.';

create or replace view admin.ops with (security_barrier) as
	select o.id, o.host, o.machine_id, b.id as box_id, o.verb, o.generation, o.state, o.keeper,
		o.lease_until, o.attempts, o.caused_by, o.error_code, o.error,
		o.created_at, o.started_at, o.finished_at,
		(extract(epoch from o.started_at - o.created_at) * 1000)::bigint as waited_ms,
		(extract(epoch from o.finished_at - o.started_at) * 1000)::bigint as took_ms
	from sbx.ops o
		left join lateral (select x.id from sbx.boxes x where x.machine_id = o.machine_id
			order by x.created_at desc limit 1) b on true;
comment on view admin.ops is 'Work of keepers: what is queued, under way, and was done.';
comment on column admin.ops.id is 'Order of arrival.';
comment on column admin.ops.host is 'Whose keeper does it.';
comment on column admin.ops.machine_id is 'The machine it is about.';
comment on column admin.ops.box_id is 'The box on that machine.';
comment on column admin.ops.verb is 'start or stop.';
comment on column admin.ops.generation is 'Generation of the machine it was made for.';
comment on column admin.ops.state is 'queued, running, done, failed or stale.';
comment on column admin.ops.keeper is 'Keeper process that holds the lease.';
comment on column admin.ops.lease_until is 'Until then nobody else takes it.';
comment on column admin.ops.attempts is 'How often it was taken.';
comment on column admin.ops.caused_by is 'Who asked: key:<id>, operator:<role>, keeper.';
comment on column admin.ops.error_code is 'Code of the failure.';
comment on column admin.ops.error is 'What failed.';
comment on column admin.ops.created_at is 'When it was asked for.';
comment on column admin.ops.started_at is 'When it was first taken.';
comment on column admin.ops.finished_at is 'When it ended.';
comment on column admin.ops.waited_ms is 'Milliseconds until it was taken.';
comment on column admin.ops.took_ms is 'Milliseconds from then to its end.';

create or replace view admin.events with (security_barrier) as
	select e.id, e.at, t.name as tenant, e.tenant_id, e.box_id, e.kind, e.from_state, e.to_state,
		e.caused_by, e.detail
	from sbx.box_events e join sbx.tenants t on t.id = e.tenant_id;
comment on view admin.events is 'What happened to boxes.';
comment on column admin.events.id is 'Order.';
comment on column admin.events.at is 'When.';
comment on column admin.events.tenant is 'Name of the tenant.';
comment on column admin.events.tenant_id is 'Whose box.';
comment on column admin.events.box_id is 'Which box.';
comment on column admin.events.kind is 'What: started, ready, stop_asked, terminated, interrupted, and the like.';
comment on column admin.events.from_state is 'State before.';
comment on column admin.events.to_state is 'State after.';
comment on column admin.events.caused_by is 'Who: key:<id>, operator:<role>, keeper.';
comment on column admin.events.detail is 'More, for people.';

-- What sandbox_stop does, for any tenant's box.
create or replace function admin.stop_box(box_id text) returns text
	language plpgsql volatile security definer set search_path = sbx, pg_temp
as $$
declare
	owner_id uuid;
begin
	select b.tenant_id into owner_id from boxes b where b.id = stop_box.box_id;
	if not found then
		raise exception 'There is no box %.', stop_box.box_id using errcode = 'no_data_found';
	end if;
	return sbx.stop_box(owner_id, box_id, 'operator:' || session_user, 'Stopped by the operator.');
end
$$;
comment on function admin.stop_box(text) is
	'Stops a box, whoever owns it, and gives its state now. Stopping again changes nothing. Leaves an event.';

revoke all on schema admin from public, sbx_worker, sbx_keeper, sbx_admin;
revoke all on all tables in schema admin from public, sbx_worker, sbx_keeper, sbx_admin;
revoke all on all routines in schema admin from public, sbx_worker, sbx_keeper, sbx_admin;
grant usage on schema admin to sbx_admin;
grant select on all tables in schema admin to sbx_admin;
grant execute on function admin.stop_box(text) to sbx_admin;
