//! Users: `AUTH`, `ACL`, and the words of a denial.

use super::call::{Call, Row, command, no_subcommand};
use super::command::{BUSY, CONTAINER, Command, LOADING, NO_AUTH, NO_KEYS, NO_SCRIPT, STALE};
use super::core::Core;
use super::data::Bytes;
use super::reply::{Answer, Failure, OK, Reply, printed};
use super::settings::Version;
use super::user::{Denied, User};
use super::{ClientId, Effect};

const OPEN: u32 = NO_AUTH | LOADING | STALE | BUSY | NO_SCRIPT;
const ACL: u32 = NO_SCRIPT | LOADING | STALE;

pub(super) const COMMANDS: [Row; 5] = [
    command("auth", -2, OPEN, NO_KEYS, auth),
    command("acl", -2, CONTAINER | ACL, NO_KEYS, no_subcommand),
    command("acl|setuser", -3, ACL, NO_KEYS, setuser),
    command("acl|deluser", -3, ACL, NO_KEYS, deluser),
    command("acl|whoami", 2, ACL, NO_KEYS, whoami),
];

impl Denied {
    /// The error for a client.
    pub(super) fn words(self, command: &Command, client: u64, core: &Core) -> Failure {
        let name = command.name;
        let version = core.version();
        let user = &core.clients[&client].user;
        let this_user = "NOPERM this user has no permissions to";
        Failure::from(match (self, version) {
            (Self::Command, Version::Redis62) => {
                let name = name.split('|').next().unwrap_or(name);
                format!("{this_user} run the '{name}' command or its subcommand")
            }
            (Self::Command, Version::Redis70) => format!("{this_user} run the '{name}' command"),
            (Self::Command, _) => {
                format!("NOPERM User {user} has no permissions to run the '{name}' command")
            }
            (Self::Key, Version::Redis62 | Version::Redis70) => {
                format!("{this_user} access one of the keys used as arguments")
            }
            (Self::Channel, Version::Redis62 | Version::Redis70) => {
                format!("{this_user} access one of the channels used as arguments")
            }
            (Self::Key, _) => "NOPERM No permissions to access a key".into(),
            (Self::Channel, _) => "NOPERM No permissions to access a channel".into(),
        })
    }

    /// The error for a script.
    pub(super) fn in_script(self, command: &Command, client: u64, core: &Core) -> Failure {
        let version = core.version();
        if version > Version::Redis70 {
            let words = self.words(command, client, core).0;
            let words = words.trim_start_matches("NOPERM ");
            return Failure::from(format!("ERR ACL failure in script: {words}"));
        }
        let code = if version == Version::Redis62 { "" } else { "ERR " };
        let what = match self {
            Self::Command => "can't run this command or subcommand",
            Self::Key => "can't access at least one of the keys mentioned in the command arguments",
            Self::Channel => "can't publish to the channel mentioned in the command",
        };
        Failure::from(format!("{code}The user executing the script {what}"))
    }
}

impl Core {
    /// Whether the user of the client may have the command carried out.
    pub(super) fn permitted(
        &self,
        client: u64,
        command: &Command,
        args: &[&[u8]],
    ) -> Result<(), Denied> {
        let user = self.clients.get(&client).and_then(|client| self.users.get(&client.user));
        user.map_or(Err(Denied::Command), |user| user.may(command, args, self.version()))
    }

    /// Ends the connections of a user to which messages come that are not for the user any more.
    fn silence(&mut self, name: &str, old: &User) {
        let user = &self.users[name];
        let may_all = user.channels.iter().any(|channel| channel == b"*");
        // Since Redis 7.0 no channel is found among the new ones, whether or not it is there.
        let keeps =
            |channel: &Bytes| self.version() == Version::Redis62 && user.channels.contains(channel);
        if may_all || old.channels.iter().all(keeps) {
            return;
        }
        let hears = |client: &&u64| {
            let client = &self.clients[client];
            let mut channels = client.channels.iter().chain(&client.sharded);
            channels.any(|channel| !user.hears(channel))
        };
        let theirs = self.clients.iter().filter(|(_, client)| client.user == name);
        let lost: Vec<u64> = theirs.map(|(client, _)| client).filter(hears).copied().collect();
        lost.into_iter().for_each(|client| self.close(client));
    }

    /// A server begins with one user, who may do everything.
    pub(super) fn make_default_user(&mut self) {
        let mut user = User::new(true);
        for rule in ["on", "nopass", "~*", "+@all"] {
            user.apply(rule.as_bytes(), self.table, self.version()).expect("a rule");
        }
        if let Some(password) = &self.settings.password {
            user.passwords.insert(password.clone());
            user.needs_no_password = false;
        }
        self.users.insert("default".into(), user);
    }

    /// The answer to a client that has not said who it is. Redis 8.0 sends none to a client that is
    /// still to be sent something else.
    pub(super) fn refusal(&self, client: u64, failure: Failure) -> Answer {
        let is_its = |effect: &Effect| matches!(effect, Effect::Send { client: to, .. } if *to == ClientId(client));
        let is_pending = self.effects[self.sent..].iter().any(is_its);
        if is_pending && self.version() == Version::Redis80 {
            return Ok(Reply::Later);
        }
        Err(failure)
    }

    /// Makes a user known who has the password.
    pub(super) fn authenticate(
        &mut self,
        client: u64,
        name: &str,
        password: &str,
    ) -> Result<(), Failure> {
        let knows = self.users.get(name).is_some_and(|user| {
            user.is_on && (user.needs_no_password || user.passwords.contains(password))
        });
        if !knows {
            return Err("WRONGPASS invalid username-password pair or user is disabled.".into());
        }
        let client = self.client(client);
        client.user = name.to_owned();
        client.is_known = true;
        Ok(())
    }
}

fn auth(call: &mut Call<'_>) -> Answer {
    if call.many() > 3 {
        return Err(super::reply::SYNTAX);
    }
    let (name, password) = if call.many() == 2 {
        if call.core.users["default"].needs_no_password {
            return Err("ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?".into());
        }
        ("default".to_owned(), call.text(1))
    } else {
        (call.text(1), call.text(2))
    };
    if let Err(failure) = call.core.authenticate(call.client, &name, &password) {
        return call.core.refusal(call.client, failure);
    }
    Ok(OK)
}

fn setuser(call: &mut Call<'_>) -> Answer {
    let name = call.text(2);
    if call.arg(2).iter().any(|byte| byte.is_ascii_whitespace() || *byte == 0) {
        return Err("ERR Usernames can't contain spaces or null characters".into());
    }
    let all_channels = call.version() == Version::Redis62;
    let mut user = call.core.users.get(&name).cloned().unwrap_or_else(|| User::new(all_channels));
    for rule in &call.args[3..] {
        user.apply(rule, call.core.table, call.version()).map_err(|why| {
            let rule = printed(rule);
            Failure::from(format!("ERR Error in ACL SETUSER modifier '{rule}': {why}"))
        })?;
    }
    let old = call.core.users.insert(name.clone(), user);
    if let Some(old) = old {
        call.core.silence(&name, &old);
    }
    Ok(OK)
}

fn deluser(call: &mut Call<'_>) -> Answer {
    let mut gone = 0;
    for at in 2..call.many() {
        let name = call.text(at);
        if name == "default" {
            return Err("ERR The 'default' user cannot be removed".into());
        }
        if call.core.users.remove(&name).is_some() {
            gone += 1;
            let theirs = call.core.clients.iter().filter(|(_, client)| client.user == name);
            let theirs: Vec<u64> = theirs.map(|(client, _)| *client).collect();
            theirs.into_iter().for_each(|client| call.core.close(client));
        }
    }
    Ok(Reply::Int(gone))
}

fn whoami(call: &mut Call<'_>) -> Answer {
    let client = call.client;
    Ok(Reply::bulk(call.core.client(client).user.as_bytes()))
}
