//! The command line.

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};

/// Sells one stock from several processes: without a lock, with one, and with one under which Redis
/// itself executes the writes.
///
/// Uses the Redis server in REDIS_URL, else starts a private one (redis-server or valkey-server, or
/// meebis, which it installs under the target directory). Exits with 0 if the sales with the lock
/// sold exactly what was there and served nobody twice.
#[derive(Parser)]
#[command(name = "flash_sale", disable_help_subcommand = true)]
struct CommandLine {
    #[command(flatten)]
    figures: Figures,
    #[command(subcommand)]
    role: Option<Hidden>,
}

/// The size of the sale.
#[derive(Args, Clone, Copy)]
pub(crate) struct Figures {
    /// Pieces in stock, 1 to 100000
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) stock: u32,
    /// Processes that sell them, 1 to 64
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) processes: u32,
    /// Buyers who want one piece each, 1 to 100000
    #[arg(long, default_value_t = 4000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) buyers: u32,
}

#[derive(Subcommand)]
enum Hidden {
    /// How this program starts copies of itself
    #[command(hide = true)]
    Till(Assignment),
}

/// What one till has to do.
#[derive(Args)]
pub(crate) struct Assignment {
    /// Which till this is, from 0
    #[arg(long)]
    pub(crate) number: u32,
    #[command(flatten)]
    pub(crate) figures: Figures,
    /// Where the shop keeps its books
    #[arg(long)]
    pub(crate) shop: String,
    #[arg(long)]
    pub(crate) way: Way,
}

/// How the tills sell.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub(crate) enum Way {
    /// Each as if it were alone
    Unlocked,
    /// One at a time, which has the lock
    Locked,
    /// The same, and Redis refuses the writes of one that has lost the lock
    Executed,
}

impl Way {
    /// What the till is told on its command line.
    pub(crate) fn argument(self) -> &'static str {
        match self {
            Self::Unlocked => "unlocked",
            Self::Locked => "locked",
            Self::Executed => "executed",
        }
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Unlocked => "without a lock",
            Self::Locked => "with redlatch",
            Self::Executed => "with execute",
        }
    }
}

/// What this process is.
pub(crate) enum Role {
    Organiser(Figures),
    Till(Assignment),
}

/// Ends the process with a message and status 2 when the arguments make no sense.
pub(crate) fn parse() -> Role {
    let line = CommandLine::parse();
    if let Some(Hidden::Till(assignment)) = line.role {
        return Role::Till(assignment);
    }
    let Figures { processes, buyers, .. } = line.figures;
    if processes > buyers {
        let message = format!("{processes} processes for {buyers} buyers: some would have nobody");
        CommandLine::command().error(ErrorKind::ValueValidation, message).exit();
    }
    Role::Organiser(line.figures)
}

impl Figures {
    /// Orders that will be placed. Every fourth buyer is impatient and presses the button twice, and
    /// the second press goes to another till.
    pub(crate) fn orders(self) -> u32 {
        self.buyers + self.buyers.div_ceil(IMPATIENT)
    }

    /// The buyers who order at this till, one entry an order.
    pub(crate) fn orders_at(self, till: u32) -> impl Iterator<Item = u32> {
        (0..self.buyers).flat_map(move |buyer| {
            let first = buyer % self.processes == till;
            let second = buyer.is_multiple_of(IMPATIENT) && (buyer + 1) % self.processes == till;
            std::iter::repeat_n(buyer, usize::from(first) + usize::from(second))
        })
    }
}

const IMPATIENT: u32 = 4;
