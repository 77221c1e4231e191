//! Whether a server is new enough, and the error for one that is not.
//!
//! `CLIENT INFO` came with the oldest supported version. So the client asks a server for its
//! version only if the server does not answer that command, or denies it to this user.

use redis::{Cmd, ErrorKind, RedisError, RedisResult, Value};

use super::error_class::{ErrorClass, NOT_SELECTED, classify};

/// Asks a server for its version.
pub(super) fn question() -> Cmd {
    let mut hello = redis::cmd("HELLO");
    // Redis 6.0 requires the protocol version.
    hello.arg(3);
    hello
}

/// Fails if the server answers that its version is too old. One that reports none is accepted.
pub(super) fn check(hello: RedisResult<Value>) -> RedisResult<()> {
    match hello {
        Ok(hello) => match too_old(&hello) {
            Some(version) => Err(refusal(format!("this server is Redis {version}"))),
            None => Ok(()),
        },
        Err(error) if classify(&error) == ErrorClass::ConnectionLost => Err(error),
        Err(_) => Ok(()),
    }
}

/// Replaces the error of a server that does not know `HELLO`. Some servers repeat the arguments in
/// it, one of which is the password.
pub(super) fn understood(error: RedisError) -> RedisError {
    let is_unknown = |text: &str| text.to_ascii_lowercase().contains("unknown command");
    if error.to_string().contains(NOT_SELECTED) {
        return error;
    }
    if error.kind() == ErrorKind::RESP3NotSupported || error.detail().is_some_and(is_unknown) {
        return refusal("this server does not know HELLO".to_owned());
    }
    error
}

/// The message about a server that was refused for its age.
pub(super) fn words(error: &RedisError) -> Option<String> {
    let of_age = error.kind() == ErrorKind::RESP3NotSupported;
    let why = error.detail().filter(|_| of_age)?;
    Some(format!("redlatch needs Redis 6.2 or newer, and {why}"))
}

fn refusal(why: String) -> RedisError {
    (ErrorKind::RESP3NotSupported, "the server is too old", why).into()
}

/// The version in an answer to `HELLO`, if it is too old. Only Redis' own versions count: Valkey
/// began with 7.2, and others have numbers of their own.
fn too_old(hello: &Value) -> Option<&str> {
    let Value::Map(fields) = hello else { return None };
    let field = |name: &str| {
        fields.iter().find_map(|(key, value)| (text(key)? == name).then(|| text(value))?)
    };
    let version = field("version").filter(|_| field("server") == Some("redis"))?;
    let mut numbers = version.split('.').map(str::parse::<u32>);
    match (numbers.next()?, numbers.next()?) {
        (Ok(major), Ok(minor)) if (major, minor) < (6, 2) => Some(version),
        _ => None,
    }
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(server: &str, version: &str) -> Value {
        let said = format!(
            "%4\r\n$6\r\nserver\r\n${}\r\n{server}\r\n+version\r\n+{version}\r\n\
             $5\r\nproto\r\n:3\r\n$7\r\nmodules\r\n*0\r\n",
            server.len()
        );
        redis::parse_redis_value(said.as_bytes()).unwrap()
    }

    #[test]
    fn only_redis_itself_is_too_old_and_only_before_6_2() {
        for version in ["6.0.16", "6.0", "5.0.6", "4.0.14"] {
            assert_eq!(too_old(&hello("redis", version)), Some(version));
            assert_eq!(too_old(&hello("another", version)), None);
        }
        for version in ["6.2.0", "6.10", "7.0.15", "8.0.2", "255.255.255", "", "6", "six.zero"] {
            assert_eq!(too_old(&hello("redis", version)), None, "{version}");
        }
        assert_eq!(too_old(&hello("valkey", "9.1.2")), None);
        assert_eq!(too_old(&Value::Nil), None);
        assert_eq!(too_old(&Value::Map(Vec::new())), None);
    }

    #[test]
    fn a_server_that_does_not_know_hello_is_refused_without_its_words() {
        for said in [
            "-ERR unknown command `HELLO`, with args beginning with: `3`, `AUTH`, `me`, `s3cret`, ",
            "-ERR unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'me' 's3cret' ",
            "-ERR Unknown Command HELLO 3 AUTH me s3cret",
        ] {
            let said = redis::parse_redis_value(format!("{said}\r\n").as_bytes()).unwrap();
            let error = understood(said.extract_error().unwrap_err());
            assert!(!format!("{error} {error:?}").contains("s3cret"), "{error}");
            let words = words(&error).expect("a refusal");
            assert_eq!(
                words,
                "redlatch needs Redis 6.2 or newer, and this server does not know HELLO"
            );
        }
    }

    #[test]
    fn other_errors_keep_their_words() {
        let said = redis::parse_redis_value(b"-WRONGPASS invalid username-password pair\r\n");
        let error = understood(said.unwrap().extract_error().unwrap_err());
        assert!(error.to_string().contains("invalid username-password pair"), "{error}");
        assert_eq!(words(&error), None);
        let said = "unknown command 'SELECT', with args beginning with: '1'".to_owned();
        let kind = redis::ServerErrorKind::ResponseError.into();
        let error = understood((kind, "Redis server refused to switch database", said).into());
        assert!(error.to_string().contains("'SELECT'"), "{error}");
        assert_eq!(words(&error), None);
    }
}
