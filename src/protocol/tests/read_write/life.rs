//! The scripts beside the model, through random lives of a few clients.

use super::*;

/// What the clients of a random life know.
#[derive(Default)]
struct Client {
    /// Its oldest waiter, with the owner that it asks for.
    waits: Option<(Came, String)>,
    holds: Vec<String>,
    ended: Vec<String>,
    last_ticket: u64,
    /// What its writers have drawn: the first token and the last one.
    drawn: BTreeMap<String, (u64, u64)>,
}

const CLIENTS: usize = 4;

/// What both say, and what a writer drew.
fn asked(real: &mut Real, model: &mut Model, me: &mut Client, ask: &Ask, step: &str) -> Reply {
    let said = real.ask(ask);
    assert_eq!(said, model.ask(ask), "{step}: {ask:?}");
    if said == Reply::Granted {
        model.draws(ask, real.granted);
    }
    assert_eq!(real.counter(), model.last, "{step}: {ask:?}");
    if let Some(last) = real.granted.filter(|_| ask.writes) {
        me.drawn.insert(ask.owner.clone(), (last + 1 - u64::from(ask.tokens), last));
    }
    said
}

/// Random steps, one in five of them sent twice: each reply, the hash and the queue are as the model says.
fn live(
    real: &mut Real,
    fenced: bool,
    steps: u32,
    random: &mut impl FnMut(u64) -> u64,
) -> [u32; 5] {
    let (mut model, mut clients, mut number, mut clock) =
        (Model::default(), [(); CLIENTS].map(|()| Client::default()), 0, 0);
    let mut granted = [0; 5];
    real.query::<()>(&["FLUSHALL"]);
    for step in 0..steps {
        let client = random(CLIENTS as u64) as usize;
        let me = &mut clients[client];
        let owner = |writes, number: &mut u64| {
            *number += 1;
            format!("c{client}:{number}{}", if writes { ":write" } else { "" })
        };
        let twice = random(5) == 0;
        let draws = |writes: bool, random: &mut dyn FnMut(u64) -> u64| match fenced {
            true if writes => 1 + random(3) as u32,
            fenced => u32::from(fenced),
        };
        clock += 1;
        match random(14) {
            0..5 => {
                let (mut came, owner) = me.waits.clone().unwrap_or_else(|| {
                    me.last_ticket += 1;
                    let writes = random(3) == 0;
                    let came = Came::new(clock, me.last_ticket, writes);
                    (came, owner(writes, &mut number))
                });
                // A writer comes behind a reader of its client, or leaves.
                if !came.writes && came.at < clock && random(2) == 0 {
                    came.writer = came.writer.xor(Some(clock)).filter(|at| *at == clock);
                }
                let tokens = draws(came.writes, random);
                let ask = Ask { came: Some(came), tokens, ..Ask::once(client, &owner) };
                let said = asked(real, &mut model, me, &ask, &format!("step {step}"));
                if twice {
                    asked(real, &mut model, me, &ask, &format!("step {step} again"));
                }
                me.waits = (said == Reply::Refused).then(|| (came, owner.clone()));
                if said == Reply::Granted {
                    granted[usize::from(came.writes)] += 1;
                    me.holds.push(owner);
                    if let Some(at) = came.writer.filter(|_| !came.writes) {
                        me.last_ticket += 1;
                        let writes = Came::new(at, me.last_ticket, true);
                        let owner = format!("c{client}:{step}{step}:write");
                        me.waits = Some((writes, owner));
                    }
                }
            }
            5 => {
                let ask = Ask::once(client, &owner(random(2) == 0, &mut number));
                let ask = Ask { tokens: draws(ask.writes, random), ..ask };
                let said = asked(real, &mut model, me, &ask, &format!("step {step}"));
                if said == Reply::Granted {
                    me.holds.push(ask.owner);
                }
            }
            // A nested hold, of an owner that may have ended.
            6 => {
                let all: Vec<_> = me.holds.iter().chain(&me.ended).cloned().collect();
                let Some(owner) = all.get(random(all.len().max(1) as u64) as usize) else {
                    continue;
                };
                let writes = owner.ends_with(":write");
                let in_turn = !writes && random(2) == 0;
                let came =
                    me.waits.as_ref().map(|(came, _)| *came).filter(|came| in_turn && !came.writes);
                let count = if writes { 2 + random(2) as u32 } else { 2 };
                let ask = Ask { came, count, in_turn, ..Ask::once(client, owner) };
                // Its writer, or another one that has no part in it.
                let other = me.holds.iter().find(|other| !writes && other.ends_with(":write"));
                let beside = other.filter(|_| random(3) > 0).cloned();
                let ask = Ask { beside, ..ask };
                let said = real.ask(&ask);
                assert_eq!(said, model.ask(&ask), "step {step}: {ask:?}");
                if said == Reply::Granted && came.is_some() {
                    me.waits = None;
                }
                if twice && said != Reply::Granted {
                    assert_eq!(real.ask(&ask), model.ask(&ask), "step {step} again: {ask:?}");
                }
            }
            7 => {
                let Some((came, _)) = me.waits.take() else { continue };
                let says = Says { client, came: None, ticket: came.ticket };
                let _ = real.run(&SCRIPTS.rw_leave, &says, &[], &[]);
                model.enter(client, None, came.ticket);
            }
            8..11 => {
                let all: Vec<_> = me.holds.iter().chain(me.ended.iter().take(1)).cloned().collect();
                let Some(owner) = all.get(random(all.len().max(1) as u64) as usize) else {
                    continue;
                };
                let came = me.waits.as_ref().map(|(came, _)| *came);
                let says = Says { client, came, ticket: me.last_ticket };
                // Its writers have used some of them, one at least.
                let drawn = me.drawn.get(owner).filter(|(first, last)| first < last);
                let ahead = drawn.map(|(first, last)| (*last, first + random(last - first)));
                granted[4] += u32::from(ahead.is_some());
                for _ in 0..=u8::from(twice) {
                    let said = real.release_with(owner, &says, ahead);
                    let expected = model.release(owner, &says);
                    if let Some((last, used)) = ahead.filter(|_| expected == Value::Int(0)) {
                        assert_eq!(model.last, Some(last), "step {step}: drawn beside a writer");
                        model.last = Some(used);
                    }
                    assert_eq!(said, expected, "step {step}: {owner}");
                    model.taken_out(&real.hash());
                    assert_eq!(real.counter(), model.last, "step {step}: {owner}");
                }
                me.holds.retain(|hold| hold != owner);
                me.ended.push(owner.clone());
            }
            // A handle that has one side asks for the other.
            11 | 12 => {
                let all: Vec<_> = me.holds.iter().chain(me.ended.iter().take(1)).cloned().collect();
                let Some(other) = all.get(random(all.len().max(1) as u64) as usize) else {
                    continue;
                };
                let asks = owner(!other.ends_with(":write"), &mut number);
                let ask = Ask::once(client, &asks).beside(other);
                let ask = Ask { tokens: draws(ask.writes, random), ..ask };
                let said = asked(real, &mut model, me, &ask, &format!("step {step}"));
                if twice {
                    asked(real, &mut model, me, &ask, &format!("step {step} again"));
                }
                if said == Reply::Granted {
                    granted[2 + usize::from(ask.writes)] += 1;
                    me.holds.push(ask.owner);
                }
            }
            _ if random(4) == 0 => {
                let says = Says { client, came: None, ticket: 0 };
                let freed = real.run(&SCRIPTS.rw_force_unlock, &says, &[], &[]);
                assert_eq!(matches!(freed, Value::Int(_)), model.mode().is_some(), "step {step}");
                model.owners.clear();
                model.dead.clear();
            }
            // A reader dies: its marker ends, and its field stays.
            _ => {
                let mut readers = model.owners.keys().filter(|owner| !owner.ends_with(":write"));
                let Some(dies) = readers.find(|owner| !model.dead.contains(owner)).cloned() else {
                    continue;
                };
                real.query::<()>(&["DEL", &marker(&dies)]);
                clients.iter_mut().for_each(|client| client.holds.retain(|hold| *hold != dies));
                model.dead.push(dies);
            }
        }
        assert_eq!(real.hash(), model.hash(), "step {step}");
        let order: Vec<_> = model.queue.iter().map(|(client, _)| format!("c{client}")).collect();
        assert_eq!(real.order(), order, "step {step}");
        for owner in model
            .owners
            .keys()
            .filter(|owner| !owner.ends_with(":write") && !model.dead.contains(owner))
        {
            assert!(real.query::<bool>(&["EXISTS", &marker(owner)]), "step {step}: {owner}");
        }
        if step % 50 == 0 {
            real.assert_nothing_eternal();
        }
    }
    granted
}

#[test]
fn the_scripts_of_the_read_write_lock_do_what_a_naive_lock_does() {
    let mut real = Real::new();
    let mut total = [0; 5];
    for seed in 1..=25_u64 {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut random = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) % below
        };
        let granted = live(&mut real, seed % 2 == 0, 400, &mut random);
        for (total, granted) in total.iter_mut().zip(granted) {
            *total += granted;
        }
    }
    assert!(total[0] > 200 && total[1] > 100, "{total:?}: few grants");
    assert!(total[2] > 40 && total[3] > 20, "{total:?}: few beside each other");
    assert!(total[4] > 20, "{total:?}: few give tokens back");
}
