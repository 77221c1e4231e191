//! Who holds a lock: the names of connections, in a simulated Redis.

use redlatch::test_util::Redis;

use crate::prelude::*;

#[test]
fn a_connection_has_its_name_with_the_first_questions_on_it() {
    let away = ms(40);
    play(0, async |scene| {
        let begun = Instant::now();
        let (_machine, client) = scene.client(away, LockClient::builder().label("far-away")).await;
        // Twice, for this runtime and then for the client's thread: TCP, HELLO, the questions, and for the first one
        // the scripts.
        assert_eq!(begun.elapsed(), 7 * away);
        let lock = client.lock("whose");
        let id = lock.owner().split(':').next().expect("an id").to_owned();
        let list: String = scene.ask(&["CLIENT", "LIST"]);
        let named = |line: &&str| line.contains(&format!(" name=redlatch:{id}:machine-"));
        let labelled = |line: &&str| line.contains(":1:far-away ");
        assert_eq!(list.lines().filter(named).filter(labelled).count(), 2, "{list}");
    });
}

#[tokio::test(start_paused = true)]
async fn a_simulated_server_knows_the_names_of_its_clients() {
    let redis = Redis::new();
    let client = redis.builder().label("in-memory").connect().await.unwrap();
    let id = client.lock("whose").owner().split(':').next().unwrap().to_owned();
    let list: String = redis.query(redis::cmd("CLIENT").arg("LIST")).unwrap();
    let named = |line: &&str| line.contains(&id) && line.contains(":in-memory ");
    assert_eq!(list.lines().filter(named).count(), 2, "{list}");
}
