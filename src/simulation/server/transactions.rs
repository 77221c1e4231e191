//! Transactions: `MULTI`, `EXEC` and `WATCH`.

use super::call::{Call, Row, command};
use super::client::Queue;
use super::command::{ALL_KEYS, BUSY, FAST, LOADING, NO_KEYS, NO_SCRIPT, STALE};
use super::core::{Core, leave};
use super::dispatch;
use super::reply::{Answer, Failure, OK, Reply};
use super::settings::Version;

const ALWAYS: u32 = NO_SCRIPT | LOADING | STALE | FAST | BUSY;

pub(super) const COMMANDS: [Row; 5] = [
    command("multi", 1, ALWAYS, NO_KEYS, multi),
    command("exec", 1, NO_SCRIPT | LOADING | STALE, NO_KEYS, exec),
    command("discard", 1, ALWAYS, NO_KEYS, discard),
    command("watch", -2, ALWAYS, ALL_KEYS, watch),
    command("unwatch", 1, ALWAYS, NO_KEYS, |call| {
        call.core.unwatch(call.client);
        Ok(OK)
    }),
];

impl Core {
    fn unwatch(&mut self, client: u64) {
        for key in std::mem::take(&mut self.client(client).watched) {
            leave(&mut self.watched, &key, client);
        }
        self.client(client).is_dirty = false;
    }

    /// Ends a transaction without carrying it out.
    pub(super) fn discard(&mut self, client: u64) {
        self.client(client).queue = None;
        self.unwatch(client);
    }
}

fn multi(call: &mut Call<'_>) -> Answer {
    let client = call.client;
    let queue = &mut call.core.client(client).queue;
    if queue.is_some() {
        return Err("ERR MULTI calls can not be nested".into());
    }
    *queue = Some(Queue::default());
    call.core.client(client).has_begun = true;
    Ok(OK)
}

fn discard(call: &mut Call<'_>) -> Answer {
    let client = call.client;
    if call.core.client(client).queue.is_none() {
        return Err("ERR DISCARD without MULTI".into());
    }
    call.core.discard(client);
    Ok(OK)
}

fn watch(call: &mut Call<'_>) -> Answer {
    let (client, db) = (call.client, call.db);
    if call.core.client(client).queue.is_some() {
        return Err("ERR WATCH inside MULTI is not allowed".into());
    }
    call.core.client(client).has_begun = true;
    for key in call.owned(1) {
        call.core.watched.entry((db, key.clone())).or_default().insert(client);
        call.core.client(client).watched.insert((db, key));
    }
    Ok(OK)
}

fn exec(call: &mut Call<'_>) -> Answer {
    let client = call.client;
    let Some(queue) = call.core.client(client).queue.take() else {
        return Err("ERR EXEC without MULTI".into());
    };
    let watched: Vec<_> = call.core.client(client).watched.iter().cloned().collect();
    // A key that has ended meanwhile has changed.
    for (db, key) in watched {
        call.core.exists(db, &key);
    }
    let is_dirty = call.core.client(client).is_dirty;
    call.core.unwatch(client);
    if queue.is_broken {
        return Err("EXECABORT Transaction discarded because of previous errors.".into());
    }
    if is_dirty {
        return Ok(Reply::NilArray);
    }
    call.core.client(client).executing = Some(queue.requests.len());
    let mut answers = Vec::new();
    for request in &queue.requests {
        let words: Vec<&[u8]> = request.iter().map(|word| &**word).collect();
        let mut answer = one(call.core, client, &words).unwrap_or_else(|failure| {
            call.core.count_error(&failure);
            Reply::Error(failure)
        });
        // Up to Redis 7.0 what it hears meanwhile is among the answers.
        if call.version() <= Version::Redis70 && !call.core.own_pushes.is_empty() {
            let mut all = std::mem::take(&mut call.core.own_pushes);
            all.push(answer);
            answer = Reply::Many(all);
        }
        answers.push((call.core.client(client).resp3, answer));
    }
    if call.core.client(client).is_closing {
        return Ok(Reply::Later);
    }
    // One of them may have chosen another version of the protocol.
    let resp3 = call.core.client(client).resp3;
    let answers = answers.into_iter().map(|(then, answer)| {
        if then == resp3 { answer } else { Reply::In(then, Box::new(answer)) }
    });
    call.core.client(client).executing = None;
    Ok(Reply::Array(answers.collect()))
}

/// One of the requests. The user may have lost the right since it was queued.
fn one(core: &mut Core, client: u64, words: &[&[u8]]) -> Result<Reply, Failure> {
    let command = dispatch::find(core, words)?;
    core.permitted(client, command, words).map_err(|denied| denied.at_exec())?;
    Ok(dispatch::run(core, client, command, words, true))
}
