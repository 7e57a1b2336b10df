//! Text for people, or JSON for programs.

/// The arguments by which commands are asked for JSON.
#[derive(clap::Args)]
pub(super) struct Notation {
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
    /// Output format: --format json is the same as --json.
    #[arg(long, value_enum, hide = true, conflicts_with = "json")]
    format: Option<Format>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    Human,
    Json,
}

impl Notation {
    pub(super) fn format(&self) -> Format {
        match self.format {
            _ if self.json => Format::Json,
            Some(format) => format,
            None => Format::Human,
        }
    }
}
