//! Under which names people see a client, and what it does.

use super::LockClientBuilder;

impl LockClientBuilder {
    /// What this client is called, for people who look for the holder of a lock: the name of its deployment and of its
    /// instance, say. [`inspect`](crate::LockClient::inspect) and the list of the server's clients show it. None unless set; 1
    /// to 64 printable ASCII characters without spaces.
    ///
    /// The client names each of its connections `redlatch:<id of the client>:<machine>:<process>` and, behind one more
    /// colon, with the label, by `CLIENT SETNAME`. It costs no round trip. A server that refuses the name, because the
    /// user lacks that right or a proxy does not know the command, does no harm but that the names are missing there.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.config.label = Some(label.into().into());
        self
    }

    /// Puts the names of locks into groups, which are a label of the [exported
    /// metrics](crate::guide::operations#metrics). Without it no series says which lock it is about.
    ///
    /// The function gets the name of each new handle, without the [prefix](Self::name_prefix). It has to return one of a
    /// few groups: the first 32 have series of their own, and all other names count in the group `other`, with a warning
    /// in the log. So do names for which it panics. It may run in any thread, and takes the time of each call that makes a
    /// handle.
    ///
    /// # Examples
    ///
    /// ```
    /// // `order:4711` and `order:4712` are `order`.
    /// let builder = redlatch::LockClient::builder()
    ///     .metrics_group(|name| name.split(':').next().unwrap_or_default().to_owned().into());
    /// ```
    #[cfg(feature = "metrics")]
    pub fn metrics_group(
        mut self,
        group: impl Fn(&str) -> std::borrow::Cow<'static, str> + Send + Sync + 'static,
    ) -> Self {
        self.config.metrics_group = crate::metrics::Grouping::new(group);
        self
    }
}
