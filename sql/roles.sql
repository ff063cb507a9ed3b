-- Roles of the cluster, made once by its superuser; idempotent. No passwords: peer authentication maps
-- system users to them, or the operator adds what pg_hba.conf asks for.
--   sbx_owner   owns everything, runs migrations
--   sbx_worker  internet-facing program: no DDL, row-level security
--   sbx_keeper  host programs: all tenants, few tables
--   sbx_admin   people: views and audited functions of schema admin; may be granted to personal roles

do $$
declare
	role text;
begin
	foreach role in array array['sbx_owner', 'sbx_worker', 'sbx_keeper', 'sbx_admin'] loop
		if not exists (select from pg_roles where rolname = role) then
			execute format('create role %I', role);
		end if;
		execute format('alter role %I login nosuperuser nocreatedb nocreaterole noreplication nobypassrls', role);
	end loop;
end
$$;
comment on role sbx_owner is 'sbx: owns the schema, runs migrations.';
comment on role sbx_worker is 'sbx: FastCGI workers; sees the rows of one tenant at a time.';
comment on role sbx_keeper is 'sbx: keepers of hosts.';
comment on role sbx_admin is 'sbx: operators; reads schema admin and calls its functions.';
