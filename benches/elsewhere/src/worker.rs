//! A process that is measured: it does what it is ordered to with one tool. One line an order on
//! standard input, one line an answer on standard output.
//!
//! | order | answer |
//! |---|---|
//! | (after the start) | `ready` |
//! | `stock NAME PIECES` | `stocked`: the row is there |
//! | `sell NAME TASKS` | `set`, and after a `go` `done SOLD REFUSED ELAPSED`, until the last sale |
//! | `turns NAME TASKS TURNS LENGTH` | `set`, and after a `go` `done TURNS REFUSED ELAPSED` |
//! | `sit NAME` | `seated`: the orders that follow are for this seat |
//! | `take` | `got WHEN`: the lock is held |
//! | `read` | `pieces PIECES` |
//! | `write PIECES` | `written`, `refused`, or `error` and what it was |
//! | `free` | `freed WHEN`, when the unlock was called |
//!
//! All times are microseconds; WHEN is wall clock, because two processes have to agree on it.
//! ZooKeeper's side understands the same: `curator/src/main/java/bench/Contestant.java`.

use std::io::Write;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::seat::{Sale, Seat, Store, Tool};
use crate::servers::Sites;
use crate::support::Result;

/// The tool that this process is to be, and where the servers are, if it was started for that.
pub(crate) fn asked() -> Result<Option<(String, Sites)>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match &args[..] {
        [option, tool, sites] if option == "--worker" => {
            Ok(Some((tool.clone(), sites.parse::<Sites>()?)))
        }
        _ => Ok(None),
    }
}

/// Until standard input ends, which it does however the parent ends.
pub(crate) async fn serve<T: Tool>(sites: &Sites) -> Result<()> {
    let tool = T::connect(sites).await?;
    say("ready")?;
    let mut orders = BufReader::new(tokio::io::stdin()).lines();
    let mut seat: Option<T::Seat> = None;
    while let Some(line) = orders.next_line().await? {
        let words: Vec<&str> = line.split(' ').collect();
        match (&words[..], &mut seat) {
            (["stock", name, pieces], _) => {
                tool.seat(name).await?.store().stock(pieces.parse()?).await?;
                say("stocked")?;
            }
            (["sell", name, tasks], _) => {
                let seats = seats(&tool, name, tasks.parse()?).await?;
                crowd(seats, &mut orders, sell).await?;
            }
            (["turns", name, tasks, turns, length], _) => {
                let seats = seats(&tool, name, tasks.parse()?).await?;
                let turns = turns.parse()?;
                let length = Duration::from_micros(length.parse()?);
                crowd(seats, &mut orders, move |seat| take_turns(seat, turns, length)).await?;
            }
            (["sit", name], _) => {
                seat = Some(tool.seat(name).await?);
                say("seated")?;
            }
            (order, Some(seat)) => at_seat(seat, order).await?,
            _ => return Err(format!("no order: {line}").into()),
        }
    }
    Ok(())
}

async fn at_seat(seat: &mut impl Seat, order: &[&str]) -> Result<()> {
    match order {
        ["take"] => {
            seat.lock().await?;
            say(&format!("got {}", now_micros()))
        }
        ["read"] => say(&format!("pieces {}", seat.read().await?)),
        ["write", pieces] => match seat.write(pieces.parse()?).await {
            Ok(true) => say("written"),
            Ok(false) => say("refused"),
            Err(error) => say(&format!("error {error:?}").replace('\n', " ")),
        },
        ["free"] => {
            let begun = now_micros();
            seat.unlock().await?;
            say(&format!("freed {begun}"))
        }
        _ => Err(format!("no order: {order:?}").into()),
    }
}

async fn seats<T: Tool>(tool: &T, name: &str, count: usize) -> Result<Vec<T::Seat>> {
    let mut seats = Vec::new();
    for _ in 0..count {
        seats.push(tool.seat(name).await?);
    }
    Ok(seats)
}

/// What one task has done, and when it did the last of it.
struct Done {
    times: u64,
    refused: u64,
    last: Instant,
}

async fn crowd<S: Seat, F: Future<Output = Result<Done>> + Send + 'static>(
    seats: Vec<S>,
    orders: &mut Lines<BufReader<Stdin>>,
    part: impl Fn(S) -> F + Clone + Send + 'static,
) -> Result<()> {
    let (go, _) = watch::channel(false);
    let mut tasks = JoinSet::new();
    for seat in seats {
        let (mut gone, part) = (go.subscribe(), part.clone());
        tasks.spawn(async move {
            gone.wait_for(|gone| *gone).await?;
            part(seat).await
        });
    }
    say("set")?;
    orders.next_line().await?;
    let begun = Instant::now();
    go.send_replace(true);
    let (mut times, mut refused, mut last) = (0, 0, begun);
    while let Some(done) = tasks.join_next().await {
        let done = done??;
        times += done.times;
        refused += done.refused;
        last = last.max(done.last);
    }
    say(&format!("done {times} {refused} {}", (last - begun).as_micros()))
}

async fn sell(mut seat: impl Seat) -> Result<Done> {
    let mut done = Done { times: 0, refused: 0, last: Instant::now() };
    loop {
        match seat.buy().await? {
            Sale::Sold => {
                done.times += 1;
                done.last = Instant::now();
            }
            Sale::Refused => done.refused += 1,
            Sale::SoldOut => return Ok(done),
        }
    }
}

async fn take_turns(mut seat: impl Seat, turns: u64, length: Duration) -> Result<Done> {
    let mut done = Done { times: 0, refused: 0, last: Instant::now() };
    while done.times < turns {
        match seat.turn(length).await? {
            true => done.times += 1,
            false => done.refused += 1,
        }
    }
    done.last = Instant::now();
    Ok(done)
}

fn say(answer: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{answer}")?;
    Ok(out.flush()?)
}

fn now_micros() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64
}
