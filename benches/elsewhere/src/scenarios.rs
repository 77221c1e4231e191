//! What is measured while nothing goes wrong: the sale, the turns and the hand-off.

use std::time::Duration;

use tokio::time::sleep;

use crate::board::{Board, Figure, median};
use crate::crew::{Contestant, PATIENCE, Part, Worker};
use crate::servers::Servers;
use crate::support::{Result, unique};

const PROCESSES: usize = 4;

/// Of one process in a sale.
const BUYERS: usize = 8;
const STOCK: u64 = 100;
/// In one round: they are short, and what else the machine does comes and goes.
const SALES: usize = 3;

/// 64 tasks, in one process or in all, and 5 turns each: 320 ms at least.
const TASKS: usize = 64;
const TURNS: usize = 5;
const TURN: Duration = Duration::from_millis(1);

const HAND_OFFS: usize = 15;
/// After so long whoever waits is parked: etcd takes a tenth of a second until a watch is quick.
const PARKED: Duration = Duration::from_millis(150);

/// The way to the servers where round trips are counted, and what is sold there.
const FAR: Duration = Duration::from_millis(100);
const FAR_SALES: usize = 2;
const FAR_STOCK: u64 = 8;

pub(crate) async fn measure(
    servers: &Servers,
    tools: &[Contestant],
    rounds: usize,
    board: &mut Board,
) -> Result<()> {
    for tool in tools.iter().filter(|tool| tool.sells()) {
        eprintln!("round trips: {}", tool.name);
        let measured = round_trips(servers, tool).await;
        note(board, Figure::RoundTrips, tool, 0, measured);
    }
    let mut crews = Vec::new();
    for tool in tools.iter().filter(|tool| tool.sells()) {
        let mut crew = Vec::new();
        for _ in 0..PROCESSES {
            crew.push(Worker::start(tool, &servers.sites).await?);
        }
        crews.push((tool, crew));
    }
    // What the first round measures is how fast a program becomes fast.
    for round in 0..=rounds {
        let mut warm_up = Board::default();
        let board = if round == 0 { &mut warm_up } else { &mut *board };
        eprintln!("round {round} of {rounds}");
        for nth in round * SALES..(round + 1) * SALES {
            for (tool, crew) in &mut crews {
                let measured = sale(tool, &mut crew[..1], 1, board).await;
                note(board, Figure::Alone, tool, nth, measured);
            }
            for (tool, crew) in &mut crews {
                let measured = sale(tool, crew, BUYERS, board).await;
                note(board, Figure::Crowd, tool, nth, measured);
            }
        }
        for (tool, crew) in crews.iter_mut().filter(|(tool, _)| tool.takes_turns()) {
            let measured = turns(&mut crew[..1], TASKS).await;
            if let Ok((_, tries)) = measured {
                board.put(Figure::Tries, tool.name, round, tries);
            }
            note(board, Figure::Turns, tool, round, measured.map(|(time, _)| time));
            let measured = turns(crew, TASKS / PROCESSES).await;
            note(board, Figure::TurnsAcross, tool, round, measured.map(|(time, _)| time));
        }
        for (tool, crew) in crews.iter_mut().filter(|(tool, _)| tool.hands_off()) {
            let measured = hand_offs(crew).await;
            note(board, Figure::HandOff, tool, round, measured);
        }
    }
    Ok(())
}

fn note(board: &mut Board, figure: Figure, tool: &Contestant, round: usize, value: Result<f64>) {
    match value {
        Ok(value) => board.put(figure, tool.name, round, value),
        Err(error) => board.failures.push(format!("{figure:?}, {}: {error}", tool.name)),
    }
}

/// What the crew has done: how often, how often in vain, and in how many seconds.
async fn work(crew: &mut [Worker], order: &str) -> Result<(u64, u64, f64)> {
    for worker in crew.iter_mut() {
        worker.ask(order, "set").await?;
    }
    for worker in crew.iter_mut() {
        worker.tell("go").await?;
    }
    let (mut times, mut refused, mut micros) = (0, 0, 0);
    for worker in crew.iter_mut() {
        let done = worker.answer("done", PATIENCE).await?;
        let figures: Vec<u64> = done.split(' ').map(str::parse).collect::<Result<_, _>>()?;
        let [did, vain, took] = figures[..] else { return Err(done.into()) };
        times += did;
        refused += vain;
        micros = micros.max(took);
    }
    Ok((times, refused, micros as f64 / 1e6))
}

/// How long it takes until everything is sold.
async fn sale(
    tool: &Contestant,
    crew: &mut [Worker],
    buyers: usize,
    board: &mut Board,
) -> Result<f64> {
    let name = unique("sale");
    crew[0].ask(&format!("stock {name} {STOCK}"), "stocked").await?;
    let (sold, _, seconds) = work(crew, &format!("sell {name} {buyers}")).await?;
    let most = board.sold.entry(tool.name).or_default();
    *most = sold.max(*most);
    if sold != STOCK && tool.part != Part::Control {
        return Err(format!("{sold} sold of {STOCK}").into());
    }
    Ok(seconds)
}

/// How long they take, and how often each was tried.
async fn turns(crew: &mut [Worker], tasks: usize) -> Result<(f64, f64)> {
    let name = unique("turns");
    crew[0].ask(&format!("stock {name} {STOCK}"), "stocked").await?;
    let order = format!("turns {name} {tasks} {TURNS} {}", TURN.as_micros());
    let (turns, refused, seconds) = work(crew, &order).await?;
    let ideal = (TASKS * TURNS) as f64 * TURN.as_secs_f64();
    Ok((seconds / ideal, (turns + refused) as f64 / turns as f64))
}

/// Between two processes, back and forth: the median, in seconds.
async fn hand_offs(crew: &mut [Worker]) -> Result<f64> {
    let name = unique("hand-off");
    crew[0].ask(&format!("stock {name} {STOCK}"), "stocked").await?;
    let [one, other, ..] = crew else { return Err("it takes two".into()) };
    let (mut holder, mut waiter) = (one, other);
    holder.ask(&format!("sit {name}"), "seated").await?;
    waiter.ask(&format!("sit {name}"), "seated").await?;
    holder.ask("take", "got").await?;
    let mut times = Vec::new();
    for _ in 0..HAND_OFFS {
        waiter.tell("take").await?;
        sleep(PARKED).await;
        let freed: u64 = holder.ask("free", "freed").await?.parse()?;
        let got: u64 = waiter.answer("got", PATIENCE).await?.parse()?;
        times.push(got.saturating_sub(freed) as f64 / 1e6);
        std::mem::swap(&mut holder, &mut waiter);
    }
    holder.ask("free", "freed").await?;
    median(times.into_iter()).ok_or_else(|| "no hand-off".into())
}

/// Of a purchase: a client far away does nothing but wait for answers. The lesser of two,
/// because a busy machine takes longer.
async fn round_trips(servers: &Servers, tool: &Contestant) -> Result<f64> {
    let (_ways, sites) = servers.at_distance(FAR)?;
    let mut worker = [Worker::start(tool, &sites).await?];
    let mut least = f64::INFINITY;
    for _ in 0..FAR_SALES {
        let name = unique("far");
        worker[0].ask(&format!("stock {name} {FAR_STOCK}"), "stocked").await?;
        let (_, _, seconds) = work(&mut worker, &format!("sell {name} 1")).await?;
        least = least.min(seconds);
    }
    Ok(least / FAR_STOCK as f64 / FAR.as_secs_f64())
}
