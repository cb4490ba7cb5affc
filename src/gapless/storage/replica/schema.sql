-- The tables and functions of a store. A broker's role may call the functions and touch no table.
-- Each function runs with the rights of the schema's owner and sees this schema only.

create schema gapless;

create table gapless.version (number integer not null);
insert into gapless.version values (1);

create table gapless.broker (
    id integer generated always as identity primary key,
    name text not null unique,
    identity uuid not null default gen_random_uuid(),
    term bigint not null default 0,
    holder text not null default '',
    address text not null default '',
    lease_end timestamptz not null default '-infinity',
    "position" bigint not null default 0,
    floor bigint not null default 0,
    leaving bigint not null default 0  -- the term whose holder is asked to hand over
) with (fillfactor = 20);  -- one row changes with each commit: leave room for that on its page

create table gapless.term (
    broker integer not null references gapless.broker on delete cascade,
    term bigint not null,
    start bigint not null,  -- the position before its first commit
    primary key (broker, term)
);

create table gapless.standby (
    broker integer not null references gapless.broker on delete cascade,
    process text not null,
    address text not null,
    "position" bigint not null,
    seen timestamptz not null,
    primary key (broker, process)
);

-- Names are bytes: a name of gapless may have characters that the type text refuses.
create table gapless.stream (
    broker integer not null,
    stream bytea not null,
    start_index bigint not null,
    end_index bigint not null,
    "position" bigint not null,
    primary key (broker, stream)
) with (fillfactor = 50);
create index on gapless.stream (broker, "position");

create table gapless.extent (
    broker integer not null,
    stream bytea not null,
    first_index bigint not null,
    last_index bigint not null,
    "position" bigint not null,
    data bytea not null,
    primary key (broker, stream, last_index)
);
alter table gapless.extent alter column data set storage external;  -- compressing costs more
create index on gapless.extent (broker, "position");

create table gapless.fact (
    broker integer not null,
    section bytea not null,  -- the table, in the volume's words
    key bytea not null,
    value bytea,             -- null: it was deleted
    "position" bigint not null,
    primary key (broker, section, key)
) with (fillfactor = 50);
create index on gapless.fact (broker, "position");

create function gapless.acquire(a_name text, a_process text, a_address text, a_lease interval)
returns table (term bigint, "position" bigint) language plpgsql
security definer set search_path = gapless, pg_temp as $$
#variable_conflict use_column
declare
    it gapless.broker;
begin
    insert into broker (name) values (a_name) on conflict (name) do nothing;
    update broker b set term = b.term + 1, holder = a_process, address = a_address,
        lease_end = clock_timestamp() + a_lease
        where b.name = a_name and b.lease_end <= clock_timestamp() returning b.* into it;
    if not found then
        return;
    end if;
    insert into term (broker, term, start) values (it.id, it.term, it."position");
    delete from standby s where s.broker = it.id and s.process = a_process;
    return query select it.term, it."position";
end $$;

create function gapless.renew(a_name text, a_term bigint, a_lease interval, a_tombstones bigint)
returns boolean language plpgsql
security definer set search_path = gapless, pg_temp as $$
declare
    it gapless.broker;
begin
    update broker b set lease_end = clock_timestamp() + a_lease,
        floor = greatest(b.floor, b."position" - a_tombstones)
        where b.name = a_name and b.term = a_term returning b.* into it;
    if not found then
        return false;
    end if;
    delete from fact f where f.broker = it.id and f."position" <= it.floor and f.value is null;
    return true;
end $$;

create function gapless.release(a_name text, a_term bigint)
returns void language sql
security definer set search_path = gapless, pg_temp as $$
    update broker set lease_end = clock_timestamp() where name = a_name and term = a_term;
$$;

create function gapless.ask_for_hand_over(a_name text, a_term bigint)
returns void language sql
security definer set search_path = gapless, pg_temp as $$
    update broker set leaving = a_term where name = a_name and term = a_term;
$$;

create function gapless.append(
    a_name text, a_term bigint, a_position bigint,
    e_streams bytea[], e_firsts bigint[], e_lasts bigint[], e_data bytea[],
    b_streams bytea[], b_starts bigint[], b_ends bigint[],
    f_sections bytea[], f_keys bytea[], f_values bytea[],
    d_sections bytea[], d_keys bytea[])
returns boolean language plpgsql
security definer set search_path = gapless, pg_temp as $$
declare
    it integer;
begin
    update broker b set "position" = a_position
        where b.name = a_name and b.term = a_term and b."position" = a_position - 1
        returning b.id into it;
    if not found then
        return false;  -- the fence: nothing was written
    end if;
    if cardinality(e_streams) > 0 then
        insert into extent (broker, stream, first_index, last_index, "position", data)
            select it, e.s, e.f, e.l, a_position, e.d
            from unnest(e_streams, e_firsts, e_lasts, e_data) as e (s, f, l, d);
    end if;
    if cardinality(b_streams) > 0 then
        insert into stream (broker, stream, start_index, end_index, "position")
            select it, n.s, n.a, n.e, a_position
            from unnest(b_streams, b_starts, b_ends) as n (s, a, e)
            on conflict (broker, stream) do update set start_index = excluded.start_index,
                end_index = excluded.end_index, "position" = excluded."position";
        delete from extent x using unnest(b_streams, b_starts) as n (s, a)
            where n.a > 0 and x.broker = it and x.stream = n.s and x.last_index < n.a;
    end if;
    if cardinality(f_sections) > 0 then
        insert into fact (broker, section, key, value, "position")
            select it, f.t, f.k, f.v, a_position
            from unnest(f_sections, f_keys, f_values) as f (t, k, v)
            on conflict (broker, section, key) do update set value = excluded.value,
                "position" = excluded."position";
    end if;
    if cardinality(d_sections) > 0 then
        insert into fact (broker, section, key, value, "position")
            select it, d.t, d.k, null, a_position from unnest(d_sections, d_keys) as d (t, k)
            on conflict (broker, section, key) do update set value = null,
                "position" = excluded."position";
    end if;
    return true;
end $$;

create function gapless.stand_by(a_name text, a_process text, a_address text, a_position bigint)
returns void language sql
security definer set search_path = gapless, pg_temp as $$
    insert into broker (name) values (a_name) on conflict (name) do nothing;
    delete from standby where seen < clock_timestamp() - interval '1 minute';
    insert into standby (broker, process, address, "position", seen)
        select b.id, a_process, a_address, a_position, clock_timestamp()
        from broker b where b.name = a_name
        on conflict (broker, process) do update set address = excluded.address,
            "position" = excluded."position", seen = excluded.seen;
$$;

create function gapless.state(a_name text)
returns table (
    identity text, term bigint, "position" bigint, position_term bigint, floor bigint,
    holder text, address text, lease_s double precision, leaving bigint)
language sql stable security definer set search_path = gapless, pg_temp as $$
    select b.identity::text, b.term, b."position",
        coalesce((select max(t.term) from term t
                  where t.broker = b.id and t.start < b."position"), 0),
        b.floor, b.holder, b.address,
        case when b.lease_end = '-infinity' then 0
             else extract(epoch from b.lease_end - clock_timestamp()) end,
        b.leaving
    from broker b where b.name = a_name;
$$;

create function gapless.standbys(a_name text)
returns table (process text, address text, "position" bigint, seen_s double precision)
language sql stable security definer set search_path = gapless, pg_temp as $$
    select s.process, s.address, s."position", extract(epoch from clock_timestamp() - s.seen)
    from standby s join broker b on b.id = s.broker
    where b.name = a_name and s.process <> b.holder order by s.process;
$$;

create function gapless.names()
returns setof text language sql stable security definer set search_path = gapless, pg_temp as $$
    select name from broker order by name;
$$;

create function gapless.contradicts(a_name text, a_term bigint, a_position bigint)
returns boolean language sql stable
security definer set search_path = gapless, pg_temp as $$
    select exists (select from term t join broker b on b.id = t.broker
        where b.name = a_name and t.term > a_term and t.start < a_position);
$$;

create function gapless.read_streams(a_name text, a_after bigint)
returns table (stream bytea, start_index bigint, end_index bigint)
language sql stable security definer set search_path = gapless, pg_temp as $$
    select s.stream, s.start_index, s.end_index from stream s join broker b on b.id = s.broker
    where b.name = a_name and s."position" > a_after;
$$;

create function gapless.read_extents(a_name text, a_after bigint)
returns table (stream bytea, first_index bigint, last_index bigint, data bytea)
language sql stable security definer set search_path = gapless, pg_temp as $$
    select x.stream, x.first_index, x.last_index, x.data
    from extent x join broker b on b.id = x.broker
    where b.name = a_name and x."position" > a_after order by x."position", x.last_index;
$$;

create function gapless.read_facts(a_name text, a_after bigint)
returns table (section bytea, key bytea, value bytea)
language sql stable security definer set search_path = gapless, pg_temp as $$
    select f.section, f.key, f.value from fact f join broker b on b.id = f.broker
    where b.name = a_name and f."position" > a_after;
$$;

revoke execute on all functions in schema gapless from public;
