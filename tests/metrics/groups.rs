//! However many names there are, there are few series.

use std::collections::BTreeSet;

use redlatch::LockClientBuilder;
use redlatch::test_util::Redis;

use crate::recorder::Recorder;
use crate::support::ms;

/// A client records within a second what its threads have kept back.
async fn all_is_recorded() {
    tokio::time::sleep(ms(1_100)).await;
}

/// Every kind, every name, some of them held.
async fn use_many_names(builder: LockClientBuilder) {
    let client = builder.connect().await.unwrap();
    for number in 0..100_000 {
        let name = format!("order:{number}");
        let (lock, fenced) = (client.lock(&name), client.fenced_lock(&name));
        let config = client.read_write_lock(&name);
        if number % 1_000 == 0 {
            lock.lock().await.unwrap().unlock().await.unwrap();
            drop(fenced.lock().await.unwrap());
            client.fair_lock(&name).lock().await.unwrap().unlock().await.unwrap();
            config.read().await.unwrap().unlock().await.unwrap();
            config.write().await.unwrap().unlock().await.unwrap();
            client.multi_lock([&name, "stock"]).lock().await.unwrap().unlock().await.unwrap();
        }
    }
    all_is_recorded().await;
}

#[tokio::test(start_paused = true)]
async fn a_client_with_100_000_names_has_few_series() {
    let recorder = Recorder::install();
    use_many_names(Redis::new().builder()).await;
    let all = recorder.all();
    assert!((20..=60).contains(&all.len()), "{}: {:?}", all.len(), all.keys());
    assert!(all.keys().all(|series| !series.contains("order")));
}

#[tokio::test(start_paused = true)]
async fn a_group_is_a_label_of_what_is_about_a_lock() {
    let recorder = Recorder::install();
    let group = |name: &str| name.split(':').next().unwrap_or_default().to_owned().into();
    let builder = Redis::new().builder().metrics_group(group).name_prefix("shop:");
    let client = builder.connect().await.unwrap();
    for name in ["order:1", "order:2", "stock:1"] {
        client.lock(name).lock().await.unwrap().unlock().await.unwrap();
    }
    all_is_recorded().await;
    let granted = recorder.millis("redlatch_acquire_duration_seconds");
    let of = |group: &str| granted[&format!("group={group},kind=lock,outcome=granted")].len();
    assert_eq!([of("order"), of("stock"), granted.len()], [2, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn the_label_of_a_client_is_one_of_all_its_series() {
    let recorder = Recorder::install();
    use_many_names(Redis::new().builder().label("orders-7b9c")).await;
    let all = recorder.all();
    assert!(
        all.len() > 20 && all.keys().all(|series| series.contains("client=orders-7b9c")),
        "{:?}",
        all.keys()
    );
}

#[tokio::test(start_paused = true)]
async fn a_function_that_makes_too_many_groups_fills_one_for_all_others() {
    let recorder = Recorder::install();
    let builder = Redis::new().builder().metrics_group(|name| name.to_owned().into());
    use_many_names(builder).await;
    let acquires = recorder.millis("redlatch_acquire_duration_seconds");
    let group = |labels: &String| labels.split(',').next().unwrap_or_default().to_owned();
    let groups: BTreeSet<String> = acquires.keys().map(group).collect();
    assert!(groups.contains("group=other") && groups.len() <= 33, "{groups:?}");
    let others = acquires.iter().filter(|(labels, _)| labels.starts_with("group=other"));
    let others: usize = others.map(|(_, times)| times.len()).sum();
    let all: usize = acquires.values().map(Vec::len).sum();
    assert_eq!(all, 600);
    assert!(others >= 500, "{others}");
}

#[tokio::test(start_paused = true)]
async fn a_function_that_panics_costs_the_name_its_group_and_nothing_else() {
    let recorder = Recorder::install();
    let builder = Redis::new().builder().metrics_group(|name| match name {
        "bad" => panic!("this function panics, on purpose"),
        _ => "good".into(),
    });
    let client = builder.connect().await.unwrap();
    for name in ["bad", "fine", "bad"] {
        client.lock(name).lock().await.unwrap().unlock().await.unwrap();
    }
    all_is_recorded().await;
    let granted = recorder.millis("redlatch_acquire_duration_seconds");
    let of = |group: &str| granted[&format!("group={group},kind=lock,outcome=granted")].len();
    assert_eq!([of("good"), of("other")], [1, 2]);
}
