use std::time::Duration;

use redlatch_recipes::shop::lock_of;

use crate::street::{elsewhere, order, shop, soon};

#[tokio::test]
async fn a_holder_whose_lease_has_ended_writes_nothing_after_its_successor() {
    let shop = shop();
    let (one, other, orders) = (elsewhere().await, elsewhere().await, &shop.orders);
    let order = order(orders).await;
    let name = lock_of(order);

    let late = one.fenced_lock(&name).lock_with_lease(Duration::from_millis(50)).await.unwrap();
    // It is paused here, past its lease, and the next one gets the lock.
    let guard = soon("the next holder", other.fenced_lock(&name).lock()).await.unwrap();
    assert!(orders.write(order, "of the next", guard.token()).await.unwrap());
    assert!(orders.write(order, "of the next, again", guard.token()).await.unwrap());

    assert!(!orders.write(order, "of the late one", late.token()).await.unwrap());
    let receipt = orders.receipt(order).await.unwrap();
    assert_eq!(receipt.as_deref(), Some("of the next, again"));
    guard.unlock().await.unwrap();
}
