//! A process that is measured: it does what it is ordered to with one lock library.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin};
use tokio::sync::{Semaphore, watch};

use super::orders::{Done, Latency, Mode, Order, Pace, Share, Work, now_micros};
use super::peer::{Handle, Peer};
use crate::support::Result;

/// After an error, so that a library which fails at once does not take the processor from others.
const AFTER_ERROR: Duration = Duration::from_millis(1);

/// The library that this process is to be, and where its server is, if it was started for that.
pub(crate) fn asked() -> Option<(String, String)> {
    let mut args = std::env::args().skip(1);
    (args.next()? == "--worker").then_some(())?;
    Some((args.next()?, args.next()?))
}

/// Until standard input ends, which it does however the parent ends.
pub(crate) async fn serve<P: Peer>(url: &str) -> Result<()> {
    let peer = P::connect(url).await?;
    let handle = peer.handle(&format!("warm-up:{}", std::process::id()))?;
    let guard = handle.lock().await?;
    handle.unlock(guard).await?;
    say("ready")?;

    let mut orders = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = orders.next_line().await? {
        match Order::parse(&line)? {
            Order::Work(order) => work(&peer, order, &mut orders).await?,
            Order::Paced(pace) => paced(&peer, pace, &mut orders).await?,
            Order::Hold(name) => {
                let handle = peer.handle(&name)?;
                let guard = handle.lock().await?;
                say("held")?;
                orders.next_line().await?;
                let begun = now_micros();
                handle.unlock(guard).await?;
                say(&format!("freed {begun}"))?;
            }
            Order::Wait(name) => {
                let handle = peer.handle(&name)?;
                let guard = handle.lock().await?;
                let got = now_micros();
                handle.unlock(guard).await?;
                say(&format!("got {got}"))?;
            }
        }
    }
    Ok(())
}

fn say(answer: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{answer}")?;
    Ok(out.flush()?)
}

async fn work<P: Peer>(peer: &P, order: Work, orders: &mut Lines<BufReader<Stdin>>) -> Result<()> {
    let handles = (0..order.tasks).map(|task| match order.mode {
        Mode::Apart => peer.handle(&format!("{}:{task}", order.name)),
        Mode::Together | Mode::InTurns => peer.handle(&order.name),
    });
    let handles = handles.collect::<Result<Vec<_>>>()?;
    let order = Arc::new(order);
    let cpu;
    let done = if order.mode == Mode::InTurns {
        set_and_go(orders).await?;
        cpu = cpu_time();
        in_turns(&handles, &order).await
    } else {
        let (go, _) = watch::channel(false);
        let tasks: Vec<_> = handles
            .into_iter()
            .map(|handle| {
                let (mut gone, order) = (go.subscribe(), Arc::clone(&order));
                tokio::spawn(async move {
                    // An error is that the parent has ended, and then there is nothing to do.
                    let _ = gone.wait_for(|gone| *gone).await;
                    alone(&handle, &order).await
                })
            })
            .collect();
        set_and_go(orders).await?;
        cpu = cpu_time();
        let begun = Instant::now();
        go.send_replace(true);
        let mut done = Done::default();
        for task in tasks {
            let (share, held, errors) = task.await?;
            done.shares.push(share);
            done.held += held;
            done.errors += errors;
        }
        done.elapsed = begun.elapsed();
        done
    };
    let all = done.shares.iter().all(|share| share.turns == order.turns);
    let elapsed = if all { done.elapsed } else { order.limit };
    let cpu = cpu_time().saturating_sub(cpu);
    say(&Done { elapsed, cpu, ..done }.line())
}

/// Of this process, since it began.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// How often it looks which turns are due: a timer of the runtime is ten times as coarse.
const PACER: Duration = Duration::from_micros(50);

/// Turns that are due at a fixed pace. A turn that has to wait for its task has begun when it was due: a library that
/// stalls does not keep the measurement from seeing that.
async fn paced<P: Peer>(peer: &P, pace: Pace, orders: &mut Lines<BufReader<Stdin>>) -> Result<()> {
    let handles = (0..pace.tasks).map(|task| peer.handle(&format!("{}:{task}", pace.name)));
    let handles = handles.collect::<Result<Vec<_>>>()?;
    set_and_go(orders).await?;
    let begun = Instant::now();
    let (due, next) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicU64::new(0)));
    let when = move |turn: u64| begun + Duration::from_secs_f64(turn as f64 / pace.rate as f64);
    let tasks: Vec<_> = handles
        .into_iter()
        .map(|handle| {
            let (due, next) = (due.clone(), next.clone());
            tokio::spawn(async move {
                let (mut took, mut failed) = (Vec::new(), Vec::new());
                // It is closed at the end.
                while let Ok(turn) = due.acquire().await {
                    turn.forget();
                    let turn = next.fetch_add(1, Ordering::Relaxed);
                    let guard = handle.lock().await;
                    let done = match guard {
                        Ok(guard) => handle.unlock(guard).await,
                        Err(error) => Err(error),
                    };
                    if done.is_ok() {
                        took.push(when(turn).elapsed());
                    } else {
                        failed.push(turn);
                        tokio::time::sleep(AFTER_ERROR).await;
                    }
                }
                (took, failed)
            })
        })
        .collect();
    let pacer = tokio::task::spawn_blocking(move || {
        let mut given = 0;
        while begun.elapsed() < pace.limit {
            let all = (begun.elapsed().as_secs_f64() * pace.rate as f64) as u64;
            due.add_permits((all - given) as usize);
            given = all;
            std::thread::sleep(PACER);
        }
        due.close();
        given
    });
    let given = pacer.await?;
    let (mut took, mut failed) = (Vec::new(), Vec::new());
    for task in tasks {
        let (its, not) = task.await?;
        took.extend(its);
        failed.extend(not);
    }
    let (turns, errors) = (took.len() as u64, failed.len() as u64);
    // These have waited until now, as have those that had no turn.
    let waiting = failed.into_iter().chain(next.load(Ordering::Relaxed)..given);
    took.extend(waiting.map(|turn| when(turn).elapsed()));
    took.sort_unstable();
    let quantile = |part| took.get(took.len() * part / 100).copied().unwrap_or_default();
    say(&Latency { turns, errors, p50: quantile(50), p99: quantile(99) }.line())
}

async fn set_and_go(orders: &mut Lines<BufReader<Stdin>>) -> Result<()> {
    say("set")?;
    orders.next_line().await?;
    Ok(())
}

/// The runtime's own timers round up to the next millisecond and would make two of one.
async fn hold(time: Duration) {
    // An error is that it was cancelled, which it is not.
    let _ = tokio::task::spawn_blocking(move || std::thread::sleep(time)).await;
}

/// One task among others: its share, how long it held the lock, and its errors.
async fn alone<H: Handle>(handle: &H, order: &Work) -> (Share, Duration, u64) {
    let (mut share, mut held, mut errors) = (Share::default(), Duration::ZERO, 0);
    let over = tokio::time::sleep(order.limit);
    tokio::pin!(over);
    while share.turns < order.turns && !over.is_elapsed() {
        let asked = Instant::now();
        let guard = tokio::select! {
            biased;
            guard = handle.lock() => Some(guard),
            () = &mut over => None,
        };
        let got = Instant::now();
        share.longest = share.longest.max(got - asked);
        let guard = match guard {
            None => break,
            Some(Ok(guard)) => guard,
            Some(Err(_)) => {
                errors += 1;
                tokio::time::sleep(AFTER_ERROR).await;
                continue;
            }
        };
        if !order.hold.is_zero() {
            hold(order.hold).await;
            held += got.elapsed();
        }
        match handle.unlock(guard).await {
            Ok(()) => share.turns += 1,
            Err(_) => errors += 1,
        }
    }
    (share, held, errors)
}

/// All of them one after the other, each step awaited: whoever is next has waited for the others.
async fn in_turns<H: Handle>(handles: &[H], order: &Work) -> Done {
    let begun = Instant::now();
    let mut done = Done { shares: vec![Share::default(); handles.len()], ..Done::default() };
    let mut asked = vec![begun; handles.len()];
    'all: for _ in 0..order.turns {
        for (at, handle) in handles.iter().enumerate() {
            if begun.elapsed() >= order.limit {
                break 'all;
            }
            let Ok(guard) = handle.lock().await else {
                done.errors += 1;
                continue;
            };
            let got = Instant::now();
            let share = &mut done.shares[at];
            share.longest = share.longest.max(got - asked[at]);
            if !order.hold.is_zero() {
                hold(order.hold).await;
                done.held += got.elapsed();
            }
            match handle.unlock(guard).await {
                Ok(()) => share.turns += 1,
                Err(_) => done.errors += 1,
            }
            asked[at] = Instant::now();
        }
    }
    done.elapsed = begun.elapsed();
    done
}
