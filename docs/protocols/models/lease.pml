/* Lease, fence, promise and take-over of docs/protocols/replicated-commits.md, for Spin.

   Two processes of one name, a store, a clock, a publisher that retries until it has a receipt.
   Requests and answers are delayed as long as they like; requests of one process may overtake each
   other; a process may crash at any step, and what it had sent may still arrive. A process that is
   not scheduled for a while is one that was stopped (SIGSTOP).

   Checked, by assertions where things happen:
     R1  a receipt is given only for an event that is in the store
     R2  no tick is written twice, and no event is there twice
     R3  no tick that was called silent carries an event
     R4  at most one process speaks (not with FROZEN)

   Left out: the check of the position. It is a second fence, and would hide that the first is gone.

   -DFROZEN           processes do not notice that time passes; R1, R2, R3 must hold nevertheless
   Planted faults:
   -DNO_TERM_CHECK    the store takes commits of any term
   -DLOCAL_CLOCK      a standby judges by its own clock that the lease has ended
   -DVOLATILE_PROMISE a promise is used and never written
   -DMISSED_COMMIT    a standby reads the store before it has the term, and not again
*/

#ifndef TICKS
#define TICKS 3
#endif
#ifndef TERMS
#define TERMS 2
#endif
#ifndef EVENTS
#define EVENTS 2
#endif
#define LEASE 2
#ifndef TIME
#define TIME 3
#endif

#define APPEND 1
#define PROMISE 2

/* What the store has. */
byte clock;
byte term;
byte lease_end;
byte promise;
byte log[TICKS];

/* What was said to anybody, ever. */
bool silent[TICKS];

typedef Holder {
    byte term;       /* 0: it stands by */
    byte end;        /* the next tick */
    byte next;       /* the publisher's next event */
    byte promise;
    byte until;      /* it may speak before this instant */
    bool writes;     /* a commit is under way */
    byte renewed;    /* when it sent a renewal, plus one; 0: none is under way */
    bool is_ready;   /* it has read the store */
}
Holder holder[2];

/* kind, term, tick, event */
chan requests[2] = [2] of { byte, byte, byte, byte };
/* kind, tick, event, whether it was done */
chan answers[2] = [1] of { byte, byte, byte, bool };

inline forget(p) {
    do
    :: len(answers[p]) -> answers[p]?_, _, _, _
    :: else -> break
    od;
    holder[p].term = 0; holder[p].end = 0; holder[p].next = 0; holder[p].promise = 0;
    holder[p].until = 0; holder[p].writes = 0; holder[p].renewed = 0; holder[p].is_ready = 0
}

inline read_store(p) {
    i = 0;
    holder[p].end = 0;
    holder[p].next = 1;
    do
    :: i < TICKS ->
        if
        :: log[i] -> holder[p].end = i + 1; holder[p].next = log[i] + 1
        :: else
        fi;
        i++
    :: else -> break
    od;
    if
    :: promise > holder[p].end -> holder[p].end = promise
    :: else
    fi;
    holder[p].promise = promise;
    i = 0
}

inline speak(p) {
#ifndef FROZEN
    assert(!(holder[1 - p].term && clock < holder[1 - p].until))  /* R4 */
#endif
    skip
}

#ifdef FROZEN
#define MAY_SPEAK(p) (holder[p].is_ready)
#else
#define MAY_SPEAK(p) (holder[p].is_ready && clock < holder[p].until)
#endif

inline serve(p) {
    is_done = (asked == term);
#ifdef NO_TERM_CHECK
    is_done = 1;
#endif
    if
    :: is_done && kind == APPEND ->
        assert(!log[tick]);                       /* R2: the tick */
        assert(!silent[tick]);                    /* R3 */
        i = 0;
        do
        :: i < TICKS -> assert(log[i] != event); i++   /* R2: the event */
        :: else -> break
        od;
        i = 0;
        log[tick] = event
    :: is_done && kind == PROMISE ->
        if
        :: tick > promise -> promise = tick
        :: else
        fi
    :: else
    fi;
    if
    :: asked == holder[p].term -> answers[p]!kind, tick, event, is_done
    :: else  /* for an earlier life: nobody waits for it */
    fi;
    kind = 0; asked = 0; tick = 0; event = 0; is_done = 0
}

active proctype store() {
    byte kind, asked, tick, event, i;
    bool is_done;
    do
    :: atomic { requests[0]?kind, asked, tick, event -> serve(0) }
    :: atomic { requests[1]?kind, asked, tick, event -> serve(1) }
    :: atomic { len(requests[0]) == 2 ->  /* the later one is first */
        requests[0]?kind, asked, tick, event;
        requests[0]!kind, asked, tick, event;
        kind = 0; asked = 0; tick = 0; event = 0 }
    :: atomic { len(requests[1]) == 2 ->
        requests[1]?kind, asked, tick, event;
        requests[1]!kind, asked, tick, event;
        kind = 0; asked = 0; tick = 0; event = 0 }
    od
}

active proctype time() {
    do
    :: clock < TIME -> clock++
    :: else -> break
    od
}

#ifdef LOCAL_CLOCK
#define LEASE_IS_OVER true
#else
#define LEASE_IS_OVER (clock >= lease_end)
#endif

proctype process(byte p) {
    byte kind, tick, event, sent, i;
    bool is_done;
    do
    /* --- standing by --- */
    :: atomic { !holder[p].term && term < TERMS -> sent = clock;
#ifdef MISSED_COMMIT
        read_store(p);
#endif
        skip };
        if
        :: atomic { LEASE_IS_OVER && term < TERMS ->
            term++; lease_end = clock + LEASE;
            holder[p].term = term; holder[p].until = sent + LEASE; sent = 0 };
            atomic {
#ifndef MISSED_COMMIT
            read_store(p);
#endif
            holder[p].is_ready = 1 }
        :: atomic { true -> sent = 0; forget(p) }
        fi
    /* --- holding --- */
    :: atomic { holder[p].is_ready && !holder[p].writes && holder[p].next <= EVENTS &&
            holder[p].end < TICKS && len(requests[p]) < 2 ->
        requests[p]!APPEND, holder[p].term, holder[p].end, holder[p].next;
        holder[p].writes = 1 }
    :: atomic { holder[p].is_ready && !holder[p].writes && holder[p].end + 1 < TICKS &&
            holder[p].promise <= holder[p].end && len(requests[p]) < 2 ->
#ifdef VOLATILE_PROMISE
        holder[p].promise = holder[p].end + 2
#else
        requests[p]!PROMISE, holder[p].term, holder[p].end + 2, 0;
        holder[p].writes = 1
#endif
        }
    :: atomic { holder[p].is_ready && !holder[p].renewed -> holder[p].renewed = clock + 1 }
    :: atomic { holder[p].renewed ->  /* the store and the answer in one step: if the answer came
                                         later, the process would only speak less */
        if
        :: holder[p].term == term ->
            lease_end = clock + LEASE;
            holder[p].until = holder[p].renewed - 1 + LEASE;
            holder[p].renewed = 0
        :: else -> forget(p)
        fi }
    :: atomic { MAY_SPEAK(p) && !holder[p].writes && holder[p].end < holder[p].promise ->
        speak(p);
        assert(!log[holder[p].end]);  /* R3 */
        silent[holder[p].end] = 1;
        holder[p].end++ }
    :: atomic { answers[p]?kind, tick, event, is_done ->
        if
        :: !is_done -> forget(p)
        :: is_done && kind == PROMISE -> holder[p].writes = 0; holder[p].promise = tick
        :: is_done && kind == APPEND ->
            holder[p].writes = 0; holder[p].end = tick + 1; holder[p].next = event + 1;
            if
            :: MAY_SPEAK(p) -> speak(p); assert(log[tick] == event)  /* R1: the receipt */
            :: else
            fi
        fi;
        kind = 0; tick = 0; event = 0; is_done = 0 }
    /* --- ends, or is too late --- */
    :: atomic { holder[p].term -> forget(p) }
    od
}

init { atomic { run process(0); run process(1) } }
