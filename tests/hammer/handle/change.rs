//! A hold of a read-write lock that changes sides, written down as a call that has one hold and ends another.

use super::*;

impl Hold {
    /// Writes from now on if it reads, or reads if it writes. What is left: this hold if another one reads.
    pub(crate) async fn change_sides(mut self, (task, req): (u16, u32)) -> Option<Self> {
        let log = self.log.clone();
        let guard = self.guard.take().expect("not given back yet");
        let flags = (self.base.flags & !FENCED) ^ READ | NESTED;
        let flags = flags | fenced(self.base.key, flags & READ != 0);
        let changed = Record { task, req, how: How::Now, flags, token: 0, ..self.base };
        let token = self.client.into();
        log.put(Record { t: now(), event: Event::AcquireInv, aux: 0, token, ..changed });
        let before = Record { how: How::Unlock, ..self.base };
        // What it wrote is over from here on; what it read is certain until it writes.
        let event = match guard {
            Guard::Write(_) | Guard::FencedWrite(_) => {
                log.put(Record { t: now(), event: Event::ReleaseInv, ..before });
                Event::ReleaseRet
            }
            _ => Event::GuardDrop,
        };
        let (ret, end) =
            (Record { event: Event::AcquireRet, ..changed }, Record { event, ..before });
        let cut_off = [ret, end].map(|record| CutOff::new(&log, &self.names, record));
        let answer = match guard {
            Guard::Read(guard) => {
                guard.try_upgrade().await.map(|it| it.map(Guard::Write).map_err(Guard::Read))
            }
            Guard::FencedRead(guard) => {
                let answer = guard.try_upgrade().await;
                answer.map(|it| it.map(Guard::FencedWrite).map_err(Guard::FencedRead))
            }
            Guard::Write(guard) => guard.downgrade().await.map(|guard| Ok(Guard::Read(guard))),
            Guard::FencedWrite(guard) => {
                guard.downgrade().await.map(|guard| Ok(Guard::FencedRead(guard)))
            }
            _ => unreachable!("only a read-write lock has two sides"),
        };
        cut_off.into_iter().for_each(CutOff::disarm);
        match answer {
            Ok(Ok(guard)) => {
                let (client, names) = (self.client, Several::default());
                let (guard, log_too) = (Some(guard), log.clone());
                let hold = Self { guard, log: log_too, client, base: changed, names }.granted();
                log.put(Record { t: now(), outcome: Outcome::Cancelled, ..end });
                Some(hold)
            }
            Ok(Err(guard)) => {
                log.put(Record { t: now(), outcome: Outcome::Busy, ..ret });
                self.guard = Some(guard);
                Some(self)
            }
            Err(error) => {
                log.put(Record { t: now(), outcome: outcome(&error), ..ret });
                log.put(Record { t: now(), outcome: Outcome::Cancelled, ..end });
                None
            }
        }
    }
}
