//! C12: stopped between the check and the effect. No lease can help there: the write comes late
//! whatever the guard says. A store that compares tokens refuses it.

use redis::Connection;

use super::*;

const LEASE: Duration = ms(90);
const STOPS: u64 = 25;

/// What each write does, as an UPDATE with a condition would: it counts if no higher token came
/// before. Every try is kept, so that what was refused can be judged without the refusal.
const WRITE: &str = "
    redis.call('RPUSH', 'tried', ARGV[1] .. ' ' .. ARGV[2])
    if tonumber(ARGV[1]) < tonumber(redis.call('GET', 'highest') or '0') then
        return 0
    end
    redis.call('SET', 'highest', ARGV[1])
    redis.call('RPUSH', 'written', ARGV[1] .. ' ' .. ARGV[2])
    return 1";

/// Whether the store took it.
fn write(store: &mut Connection, token: u64, writer: &str) -> bool {
    let mut write = redis::cmd("EVAL");
    write.arg(WRITE).arg(0).arg(token).arg(writer).query(store).expect("the store")
}

/// Writes whenever it believes that it may, until it is told to end.
pub(super) fn child(url: &str) {
    static END: AtomicBool = AtomicBool::new(false);
    thread::spawn(|| {
        child::hear();
        END.store(true, Ordering::Relaxed);
    });
    let mut store = redis::Client::open(url).unwrap().get_connection().unwrap();
    let refused = runtime().block_on(async {
        let client = client_with(url, LEASE).await;
        let lock = client.fenced_lock("page");
        let mut refused = 0;
        for hold in 0_u64.. {
            let lease = lease_of(if hold % 2 == 0 { "fixed" } else { "renewed" }, LEASE);
            let guard = lock.try_lock(SOON, lease).await.expect("locking").expect("a turn");
            while !guard.is_lost() && !END.load(Ordering::Relaxed) {
                // Between the check and the effect, like any work: stopped here for the most part.
                thread::sleep(ms(3));
                refused += u64::from(!write(&mut store, guard.token().get(), "child"));
            }
            drop(guard);
            if END.load(Ordering::Relaxed) {
                break;
            }
        }
        client.close().await;
        refused
    });
    child::say(refused);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c12_a_write_that_comes_after_its_lock_was_lost_is_refused_by_the_token() {
    let server = Server::start();
    let client = connect(&server).await;
    let lock = client.fenced_lock("page");
    let mut store = server.connection().expect("a connection");
    let mut child = start_child(&format!("writing {}", server.url()));
    let (mut seed, mut last) = (0xfe7ce_u64, 0);
    for _ in 0..STOPS {
        let held = || !server.holds("page").is_empty();
        block_until("the child has the lock", SOON, held);
        // Anywhere in its work.
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        thread::sleep(Duration::from_micros((seed >> 33) % 10_000));
        child.stop();
        let guard = soon("the lock", lock.lock()).await.expect("locking");
        let token = guard.token().get();
        assert!(token > last, "{token} after {last}");
        last = token;
        assert!(write(&mut store, token, "parent"), "refused with the highest token");
        soon("unlocking", guard.unlock()).await.expect("unlocking");
        child.go_on();
    }
    child.say("end");
    let refused: u64 = child.hear_value();

    let entries = |list: &str| -> Vec<(u64, String)> {
        let entries: Vec<String> = server.ask(&["LRANGE", list, "0", "-1"]);
        let split = |entry: String| {
            let (token, writer) = entry.split_once(' ').expect("a token and a writer");
            (token.parse().expect("a token"), writer.to_owned())
        };
        entries.into_iter().map(split).collect()
    };
    let (tried, written) = (entries("tried"), entries("written"));
    // The writes were stopped where they can do harm: without the check these had come through.
    let mut highest = 0;
    let stale = tried.iter().filter(|(token, _)| {
        highest = highest.max(*token);
        *token < highest
    });
    let stale = stale.count() as u64;
    println!("{STOPS} stops, {} writes tried, {stale} of them stale", tried.len());
    assert!(stale >= STOPS / 5, "{stale} stale writes in {STOPS} stops");
    assert_eq!(refused, stale, "stale writes, and what the child was refused");
    assert_eq!(tried.len() - written.len(), refused as usize);
    assert!(written.is_sorted_by_key(|(token, _)| *token));
    // Only one of them ever had a token.
    let mut holders = written.chunk_by(|one, next| one.0 == next.0);
    assert!(holders.all(|hold| hold.iter().all(|write| write.1 == hold[0].1)));
    assert_eq!(written.iter().filter(|(_, writer)| writer == "parent").count() as u64, STOPS);
    block_until("a free lock", SOON, || !server.exists("page"));
}
