"""All limits and timers of a broker, in one place.

Every queue, cache and table has a bound named `*_max` here, and its docstring says what happens
there. Times are whole microseconds. `Config()` is what a broker uses unless told otherwise; the
simulator draws others from its seed.

Source: docs/protocols/exactly-once.md, 4.7 (most are those of Open Liberty's messaging engine).
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from gapless.core.errors import UsageError

MILLISECOND = 1_000
SECOND = 1_000_000
MEBIBYTE = 1 << 20
BASIC = {"basic": True}
"""Marks a setting that most operators need; the reference lists these first."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Limits and timers; see each field."""

    gap_patience: int = 200 * MILLISECOND
    """How long a subscriber-hosting broker waits for a gap to close by itself before it nacks."""

    merge_patience: int = 50 * MILLISECOND
    """How long a total order waits for a pubend that lags, such as one that is idle, before it asks
    it for silence: about how much later an event comes than in publisher order."""

    nack_repeat: int = 1 * SECOND
    """When to repeat an unanswered nack; doubles each time up to `nack_repeat_longest`."""

    nack_repeat_longest: int = 60 * SECOND

    nack_forget: int = 500 * MILLISECOND
    """For how long a relay holds back a repeated nack for ticks it has asked for already.
    Must be less than `nack_repeat`, or a repeated nack would never pass."""

    ack_delay: int = 200 * MILLISECOND
    """How long a broker gathers acknowledgements before it sends one upstream."""

    ack_expected: int = 3 * SECOND
    """How long a pubend waits for all its events of a moment to be acknowledged before it asks;
    doubles while nothing is heard, up to `ack_expected_longest`."""

    ack_expected_longest: int = 48 * SECOND

    idle_silence: int = 500 * MILLISECOND
    """An idle pubend says so this often, so that the horizons below it move on; less often the
    longer it is idle, up to `idle_silence_longest`. Whoever waits for it asks."""

    idle_silence_longest: int = 16 * SECOND

    silence_flush: int = 1 * SECOND
    """How long a relay may keep silence to itself, hoping to send it along with an event."""

    promise_step: int = 1 * SECOND
    """A pubend persists how far it may promise silence this much ahead of need, so that it need
    not write for each promise."""

    promise_told_every: int = 60 * SECOND
    """While events come, a pubend tells other brokers at most this often how far it has spoken, so
    that they know it should its host be given an older copy of its disk."""

    clock_skew_max: int = 24 * 3_600 * SECOND
    """How far ahead of its own clock a pubend promises silence when it is asked to, so that a
    total order does not wait for the slowest clock. Beyond it the order waits."""

    start_repeat: int = 1 * SECOND
    """How often a subscriber-hosting broker asks again where a pubend stands."""

    heartbeat: int = 1 * SECOND
    """How often brokers that share a link prove that they live."""

    dead_after: int = field(default=3 * SECOND, metadata=BASIC)
    """A neighbour that was not heard for this long counts as dead until it is heard again."""

    cache_events_max: int = 1_000
    """Events a broker caches per pubend for retransmission; beyond it the oldest are forgotten
    and a nack for them goes further up."""

    cache_bytes_max: int = 64 * MEBIBYTE
    """The same in bytes; one event always fits, here and below."""

    release_delay: int = 500 * MILLISECOND
    """How long a pubend gathers acknowledged events before it gives their space back."""

    past_window: int = 2 * SECOND
    """For how long acknowledged events stay cached, for subscribers that come late."""

    waiting_events_max: int = 10_000
    """Events that wait behind a gap, per pubend; beyond it newer ones are not taken in, and are
    asked for again when the gap has closed."""

    waiting_bytes_max: int = 64 * MEBIBYTE
    """The same in bytes."""

    publish_pending_max: int = 10_000
    """Events accepted by a pubend and not yet durable; beyond it a publication is refused and may
    be tried again."""

    publish_pending_bytes_max: int = 64 * MEBIBYTE
    """The same in bytes; and as many that are being staged."""

    batch_events_max: int = 1_000
    """Events in one message to a broker or a client, or in one write; more go into several. A
    single publication is never split over two writes."""

    batch_bytes_max: int = 1 * MEBIBYTE
    """The same in bytes. A message must fit a frame, so an event must too."""

    answer_bytes_max: int = 4 * MEBIBYTE
    """Events sent in answer to one nack, in bytes; the rest is to be asked for anew, so that who
    asks sets the pace."""

    range_bytes_max: int = 1 * MEBIBYTE
    """What one step of a range read looks at in the log, in bytes, and twice that where everything
    matches; the client asks for the next."""

    range_events_max: int = 250_000
    """Events of which one step of a range read looks at digests alone; the client asks for the
    next."""

    range_digest_bytes_max: int = 64 * MEBIBYTE
    """Digests of what range reads with a condition have seen, and who looks ahead of them, 4 to 8
    bytes an event and 1 to 9 for each attribute; beyond it those used longest ago are forgotten,
    the next read looks at the log again, and nobody looks ahead."""

    publishers_max: int = 10_000
    """Named publishers a pubend remembers; beyond it the one that was idle longest is forgotten, if
    it was for `publisher_idle`, and else a new name is refused. Of one principal: its share."""

    publisher_idle: int = 7 * 24 * 3_600 * SECOND
    """How long a named publisher must not have been heard of before its name may be forgotten for
    another. What it sends later under the old opening is refused, and never published twice; opened
    again, it begins at 0."""

    receipts_max: int = 64
    """For each named publisher, how many of its newest runs of publications are remembered with
    their ticks. An older repeat is still recognised, but answered without its tick."""

    transactions_max: int = 1_000
    """Transactions that are staged at a pubend and not committed yet; beyond it a new one is
    refused and may be tried again. Of one principal: its share."""

    staged_bytes_max: int = 1024 * MEBIBYTE
    """What is staged at a pubend, in bytes on disk; beyond it a stage is refused and may be tried
    again. Of one principal: its share. A restart reads it through."""

    copy_batches_max: int = 4
    """How many times `batch_events_max` events of a committed transaction, and `batch_bytes_max`
    bytes, go into the log in one write; the rest follows. More of them take fewer syncs. They are
    told one by one, so that a broker has no more to do at a time than for one."""

    producers_max: int = 10_000
    """Producers of transactions a pubend remembers; beyond it a new name is refused. Of one
    principal: its share. None is forgotten unless an administrator strikes it off."""

    producers_once_max: int = 1_000
    """Producers of a single transaction (named `once/…`) that a pubend remembers besides; beyond it
    the oldest is forgotten. A commit that is repeated then is refused: its parts are gone."""

    transaction_expiry: int = 3_600 * SECOND
    """A transaction that was not heard of for this long is dropped. A restart begins anew."""

    client_queue_max: int = field(default=10_000, metadata=BASIC)
    """Events sent to a client that it has not yet consumed; beyond it the subscription that
    cannot keep up is ended with an error."""

    client_queue_bytes_max: int = 64 * MEBIBYTE
    """The same in bytes."""

    delivery_pace: int = 100
    """The time that a message to a subscriber takes up, in microseconds; when it is used up, what
    becomes settled gathers and leaves as fewer and longer messages."""

    delivery_pace_behind: int = 400
    """The same while anyone catches up, who needs the time too."""

    delivery_saved: int = 50 * MILLISECOND
    """Time that nobody used up before: so many messages may be sent at once."""

    delivery_pause_max: int = 40 * MILLISECOND
    """How long an event may wait for that, at most."""

    subscriptions_max: int = field(default=100_000, metadata=BASIC)
    """Subscriptions at one broker; beyond it a new one is refused. Of one principal: its share."""

    principal_share_percent: int = field(default=25, metadata=BASIC)
    """What one principal may take of a bound that many share, in percent: of connections' memory,
    subscriptions, conditions, names of publishers and producers, open transactions, topics and
    pubends. Beyond its share it is refused or waits, while others still have room. Decision 0028
    says who the principal is where nobody proves who they are."""

    condition_cost_max: int = 4_000_000
    """What matching may cost one event of a topic, all conditions of its subscriptions at one
    broker together, as estimated from their form: in units of about 10 ns, of which a pattern that
    is no prefix costs 100 and one with `_` in it 300. Beyond it a new subscription is refused."""

    principal_condition_cost_max: int = 1_000_000
    """The same for the conditions of one principal, where there is security."""

    turn_cost_max: int = 5_000_000
    """What matching may cost in one turn, in the same units: of a batch that would cost more a part
    is delivered, and the rest in further turns, between which others have theirs."""

    propagates: bool = True
    """Whether subscriptions are told to the brokers on the way, which then let pass only what
    someone behind them wants. All brokers of a network must agree."""

    change_gather: int = 10 * MILLISECOND
    """A broker tells changes of its subscriptions at once, but no more often than this."""

    change_wait: int = 2 * SECOND
    """How long it waits at first for a change to come back in the vectors of messages; it learns
    how long that takes, and sends everything again where it takes longer."""

    change_wait_shortest: int = 200 * MILLISECOND
    change_wait_longest: int = 60 * SECOND

    lag_patience: int = 50 * MILLISECOND
    """How long a broker that misses subscriptions waits for what may be on its way."""

    lag_repeat: int = 500 * MILLISECOND
    """How often it asks again for what it misses."""

    changes_pending_max: int = 64
    """Changes of subscriptions that wait for what they build on; beyond it the oldest goes, and
    all of it is asked for."""

    virtual_time_step: int = 1_000
    """How far ahead the clock of changes is persisted, so that not each needs a write."""

    durable_subscriptions_max: int = 100_000
    """Durable subscriptions at one broker; beyond it a new one is refused. Of one principal: its
    share."""

    definition_bytes_max: int = 32 * MEBIBYTE
    """What names and conditions of durable subscriptions take in a broker's tables, which hold
    64 MiB altogether; beyond it a new one is refused. Of one principal: its share."""

    catch_up_window: int = 256
    """Events that one subscription which catches up has asked for and not been sent yet."""

    catch_up_total_max: int = 2_000
    """The same for all of them together, in equal parts for each pubend; beyond it they take turns.
    It is also how many events they are sent in one step, or a window more, so that many that return
    at once leave room for the live stream; what another of them took from the log just before costs
    less, and counts an eighth. One for which all is filtered here counts as a whole window, so that
    the last to ask may be a window beyond."""

    catch_up_work_max: int = 3_000
    """What all that catch up do in one step, counted in events: those that are sent or asked for,
    one more for each KiB of what is sent, and one for each record of a filtered log that is looked
    at; beyond it they go on in the next step, however far behind they are. The last to go on may
    need a window and a read more."""

    catch_up_shared_bytes_max: int = 16 * MEBIBYTE
    """Events that one of those who catch up took from the log, kept for others who want the same;
    beyond it the oldest are forgotten, and taken from the log again."""

    catch_up_spans_max: int = 20_000
    """Open questions of all that catch up behind one neighbour; beyond it the oldest is forgotten,
    and asked again by who still wants it."""

    filtered_read_max: int = 1_000
    """Events that one read of the filtered log finds; the rest is read later."""

    filtered_walk_max: int = 1_000
    """Records that one read of the filtered log looks at; it goes on with the next."""

    filtered_replay_max: int = 20_000
    """Records of the filtered log that a restart reads again, at most."""

    filtered_pending_max: int = 10_000
    """Events delivered and not yet in the filtered log; beyond it the stream waits for the disk."""

    filtered_pending_bytes_max: int = 64 * MEBIBYTE
    """The same in bytes."""

    delivered_flush: int = 250 * MILLISECOND
    """How long a position may wait to be written when nobody took an event."""

    group_members_max: int = 1_000
    """Members of one group; one more is refused."""

    group_member_events_max: int = 32
    """Events that one member of a group has in hand; the next come when it has finished some."""

    group_keys_max: int = 50_000
    """Keys of a group whose members are remembered; beyond it the key that was used longest ago is
    forgotten, and its next event may go to another member."""

    released_flush: int = 250 * MILLISECOND
    """How long acknowledgements are gathered before they are written."""

    storage_retry: int = 1 * SECOND
    """When to try again a write for which there was no room."""

    hand_over_repeat: int = 1 * SECOND
    """How often a step of a hand-over is repeated until it is answered."""

    topics_max: int = 10_000
    """Names of topics, those that were deleted lately included; beyond it a new one is refused. Of
    one principal: its share."""

    topic_forget: int = 7 * 24 * 3_600 * SECOND
    """How long the name of a deleted topic is remembered, by the brokers' clocks, so that one who
    was away does not bring the topic back; then the name takes no room any more. A broker that was
    away for longer brings it back for a moment; then it is deleted again."""

    pubends_max: int = 65_536
    """Pubends of all topics of a network together; beyond it a new topic is refused. Of one
    principal: its share."""

    topic_ask_repeat: int = 200 * MILLISECOND
    """How often the owner of a name is asked about a topic that is not known here."""

    topic_denied: int = 1 * SECOND
    """For how long his answer counts that there is none."""

    names_max: int = 200_000
    """Names of durable subscriptions of which one broker is the registrar; beyond it a new one is
    refused. Of one principal: its share."""

    name_repeat: int = 500 * MILLISECOND
    """How often a registrar is asked again that does not answer."""

    name_patience: int = 2 * SECOND
    """How long a client waits for it before it is refused for the moment. Must be more than
    `name_repeat`."""

    name_questions_max: int = 10_000
    """Names about which registrars are being asked; beyond it a client that comes with one more is
    refused for the moment, and what is to be told waits."""

    failures_tolerated: int = field(default=2, metadata=BASIC)
    """Of the reliable service: how many neighbouring brokers or links may fail at once with nothing
    lost. All brokers of a network must agree."""

    tree_beat: int = 1 * SECOND
    """How often a broker of the reliable service says that it lives."""

    tree_patience: int = 3 * SECOND
    """How long without an answer until another counts as unreachable, and is stepped over. Must be
    more than `tree_beat`; and had better be more than `redial_longest_s` of the broker, or else one
    that is about to dial a broker that has just started may count as unreachable there."""

    tree_queue_max: int = 10_000
    """Events of one reliable topic that wait to be confirmed at which a broker takes no more of it
    from its publishers: they are refused and may be tried again. At half of them the older half of
    those is given up for subscribers of brokers that are out of reach, who are told when those are
    back; publishers go on. A broker keeps no more than this of a topic for brokers out of reach."""

    tree_window_max: int = 1_000
    """Events of reliable topics that are sent to a neighbour before it has taken some; the rest
    waits."""

    tree_subscriptions_max: int = 1_000_000
    """Reliable topics: conditions of other brokers that a broker knows; one more is refused where
    it began."""

    nack_spans_max: int = 100
    """Spans in one nack; the rest is asked for when these have come. More than that of one
    neighbour's questions are not remembered either: it asks again."""

    multicast_beat: int = 1 * SECOND
    """How often a node of a multicast tree shows its children that it lives. All other timers of
    the multicast service are in proportion to it (`scribe/settings.py`)."""

    multicast_leaf_set_size: int = 16
    """Brokers next to each other on the ring of the multicast service that know each other, even. A
    smaller network is one in which everyone knows everyone."""

    multicast_children_max: int = 64
    """Brokers to which one broker passes the events of one multicast topic; beyond it one more is
    sent to one of them."""

    multicast_topics_max: int = 100_000
    """Multicast topics that one broker takes part in for others, keeps the record of, or has
    published to, each; beyond it another broker on the route serves, a new topic is not created,
    a publication is refused."""

    multicast_pending_max: int = 1_024
    """Publications to multicast topics that wait to be confirmed; beyond it the next is refused and
    may be tried again."""

    multicast_log_bytes_max: int = 4 * MEBIBYTE
    """What each of the brokers that hold an ordered multicast topic keeps of it for those that
    missed something, in bytes; beyond it the oldest goes, and who still lacks it gets a gap."""

    multicast_names_max: int = 10_000
    """Brokers outside the network file whose names are remembered for the multicast service; beyond
    it the one heard of longest ago is forgotten."""

    def __post_init__(self) -> None:
        for each in fields(self):
            if each.type != "bool" and getattr(self, each.name) <= 0:
                raise UsageError(f"{each.name} must be above zero")
        if self.principal_share_percent > 100:
            raise UsageError("principal_share_percent must be at most 100")
        if self.nack_forget >= self.nack_repeat:
            raise UsageError("nack_forget must be less than nack_repeat")
        if self.name_patience <= self.name_repeat:
            raise UsageError("name_patience must be more than name_repeat")
        if self.tree_patience <= self.tree_beat:
            raise UsageError("tree_patience must be more than tree_beat")
        if self.dead_after <= self.heartbeat:
            raise UsageError("dead_after must be more than heartbeat")
