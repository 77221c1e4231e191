//! The cases, with the names that they have in `RedissonReadWriteLockTest`. Seconds are shorter here. Of its 32, the
//! other ones are played elsewhere: crowds by the hammer and `exclusion`, renewals and processes that are killed by
//! `watchdogs`; or they are about nothing that two sides share (`testReentrancy`, and one that is disabled).

/// The name of each, and its steps.
pub(super) const CASES: &[&str] = &[
    "testReadLockExpiration: a.read:2000 b.read:1000 c.write~ c.gets c.-write",
    "testReadLockIsLocked: a.write a.read-locked a.read a.read-locked a.-read a.-write",
    "testName: a.read b.read a.-read a.write? b.-read b.write a.read? b.-write",
    "testWriteLockExpiration: a.write:10000 a.write:2000 b.write? a.-write b.write? a.-write \
     b.write? b.-write",
    "testInCluster: a.write a.read a.-read a.-write",
    "testReadLockLeaseTimeoutDiffThreadsWRR: a.write:1000 b.read~ c.read~ b.gets c.gets b.-read \
     c.-read",
    "testReadLockLeaseTimeoutDiffThreadsRRW: a.read:1000 b.read:1000 b.-read c.write~ c.gets \
     a.-read c.-write",
    "testReadLockLeaseTimeout: a.read:1000 a.read:1000 a.-read b.write? a.ends b.write? b.-write",
    "testWR: a.write a.read a.write-locked a.-read a.write-locked b.read? a.-write \
     a.write-locked",
    "testWriteRead: a.write b.read~ c.read~ a.-write b.gets c.gets b.-read c.-read",
    "testWriteReadReentrancy: a.write a.read? b.read? a.-write b.write? a.-read a.write? \
     a.-write",
    "testWriteLock: a.write a.write? b.write-locked b.read? a.-write b.read? a.read? a.-write \
     b.write? b.write-locked b.read? a.-read b.-read",
    "testMultiRead: a.force-read a.read b.write? b.read-locked b.read b.read-locked a.-read \
     a.write? b.-read b.read-locked a.write? a.write-locked a.-write a.write-locked a.write? \
     a.force-write",
    "testForceUnlock: a.read a.read-locked b.force-write a.read-locked b.force-read \
     a.read-locked a.write a.write-locked b.force-read a.write-locked b.force-write \
     a.write-locked b.read-locked",
    "testReadWriteTTL: a.write a.read b.read? a.-write b.read? a.-read b.-read",
    "testMultiInstanceReadLockZombieCleanup: a.read:1000 b.read c.write~ a.ends b.-read c.gets c.-write",
    "testExpireRead: a.read:2000 b.read b.-read a.-read",
    "testExpireReadLate: a.read:1000 b.read:2000 a.ends a.-read b.-read",
    "testExpireReadAlone: a.read:1000 a.ends a.-read b.-read a.write b.-read b.-write a.-write",
    "testExpireWrite: a.write:1000 b.write~ b.gets a.-write b.-write",
    "testHoldCountRead: a.read a.read b.read a.-read a.-read b.-read",
    "testHoldCountWrite: a.write a.write a.write b.read? a.-write a.-write a.-write",
    "testIsHeldByCurrentThreadOtherThread: a.read b.read-locked b.-read a.-read b.read-locked",
    "testIsLockedOtherThread: a.read-locked a.read a.read-locked b.read-locked a.-read \
     b.read-locked",
    "testUnlockFail: a.read b.-read a.read-locked a.-read",
    "testLockUnlock: a.read a.-read a.read a.-read a.write a.-write a.write a.-write",
];
