//! Prints what a check has found: short lines, equal findings together; or all of it as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::Checked;
use super::cluster::{DEFINITIONS, DEPLOYMENTS};
use super::finding::{Finding, Outcome};
use super::forecast::{Fate, Forecast, Prediction};

/// Names in one line.
const NAMED: usize = 5;

impl Checked {
    /// The exit code: 4 if something is not served, 3 if something is to be done or could not be checked, else 0.
    pub(crate) fn exit_code(&self) -> u8 {
        let has = |outcome| self.findings.iter().any(|finding| finding.outcome == outcome);
        if has(Outcome::NotServed) {
            return 4;
        }
        let is_worse = |fate: &Fate| matches!(fate, Fate::Evicted | Fate::Fails);
        let loses = self.forecast.as_ref().is_some_and(|forecast| {
            Fate::ALL.iter().filter(|fate| is_worse(fate)).any(|fate| !forecast.of_fate(*fate).is_empty())
        });
        let is_partial = !self.cluster.unread.is_empty()
            || self.forecast.as_ref().is_some_and(|forecast| matches!(forecast, Forecast::Skipped(_)));
        if has(Outcome::ToDo) || loses || is_partial { 3 } else { 0 }
    }

    /// All that was found.
    pub(crate) fn value(&self) -> Value {
        let unread = self
            .cluster
            .unread
            .iter()
            .map(|unread| json!({"resource": unread.resource, "why": unread.why, "lacks": unread.lacks}));
        json!({
            "systems": self.systems.iter().map(super::systems::System::value).collect::<Vec<_>>(),
            "findings": self.findings.iter().map(Finding::value).collect::<Vec<_>>(),
            "notChecked": unread.collect::<Vec<_>>(),
            "forecast": self.forecast.as_ref().map(Forecast::value),
            "commands": self.commands.as_ref().map(super::commands::Commands::value),
            "exitCode": self.exit_code(),
        })
    }

    /// The report for a reader.
    pub(crate) fn text(&self) -> String {
        let mut out = Sections::default();
        if self.systems.is_empty() {
            self.nothing(&mut out);
        } else {
            out.heading("Found");
            for system in &self.systems {
                out.line(1, &format!("{}: {}", system.software.name(), system.state()));
                for definition in &system.definitions {
                    out.line(2, definition);
                }
            }
        }
        for outcome in Outcome::ALL {
            self.outcome(&mut out, outcome);
        }
        self.unread(&mut out);
        if let Some(forecast) = &self.forecast {
            predictions(&mut out, forecast);
        }
        if self.commands.is_none() && !self.systems.is_empty() {
            out.heading("Commands");
            out.line(1, "none: no Deployment of Kueue or MCAD was found; docs/install.md tells how Muster is installed where neither is");
        }
        if let Some(commands) = &self.commands {
            out.heading(&format!("Commands (docs/install.md, \"{}\")", commands.section));
            for line in &commands.lines {
                out.line(1, &line.replace('\n', "\n  "));
            }
        }
        if !self.systems.is_empty() {
            out.heading(self.verdict());
        }
        out.0
    }

    fn verdict(&self) -> &'static str {
        match self.exit_code() {
            0 => "All of it is served, and nothing is to be done beside the commands.",
            3 => "Something is to be done, or could not be checked: see above.",
            _ => "Something is not served: see above.",
        }
    }

    fn outcome(&self, out: &mut Sections, outcome: Outcome) {
        let mut groups: BTreeMap<(&str, &str, &str), Vec<String>> = BTreeMap::new();
        for finding in self.findings.iter().filter(|finding| finding.outcome == outcome) {
            let key = (&*finding.subject.kind, &*finding.what, &*finding.remedy);
            groups.entry(key).or_default().push(finding.subject.named());
        }
        if groups.is_empty() {
            return;
        }
        out.heading(outcome.heading());
        for ((kind, what, remedy), names) in groups {
            let is_counted = outcome == Outcome::Kept && names.len() > 1;
            let of = if is_counted { format!("({})", grouped(names.len())) } else { listed(&names) };
            out.line(1, &format!("{kind} {of}: {what}"));
            if !remedy.is_empty() {
                out.line(2, &format!("-> {remedy}"));
            }
        }
    }

    fn unread(&self, out: &mut Sections) {
        if self.cluster.unread.is_empty() {
            return;
        }
        out.heading("Not checked");
        for unread in self.cluster.unread.iter().filter(|unread| unread.lacks.is_none()) {
            out.line(1, &format!("{}: {}", unread.resource, unread.why));
            if unread.why.contains("conversion webhook") {
                out.line(2, "-> start Kueue for this check: objects are stored in another version, and it converts them");
            }
        }
        for verb in ["list", "get"] {
            let lacking = self.cluster.unread.iter().filter(|unread| unread.lacks == Some(verb));
            let names: Vec<&str> = lacking.map(|unread| unread.resource.as_str()).collect();
            if !names.is_empty() {
                out.line(1, &format!("no right to {verb} {}", names.join(", ")));
                out.line(
                    2,
                    &format!(
                        "-> a ClusterRole with the verb {verb} for these resources; cluster-admin has it"
                    ),
                );
            }
        }
    }

    /// That nothing was found, or not looked for.
    fn nothing(&self, out: &mut Sections) {
        let is_unread = |name: &str| self.cluster.unread.iter().any(|unread| unread.resource == name);
        if is_unread(DEPLOYMENTS) && is_unread(DEFINITIONS) {
            out.line(0, "Whether Kueue, MCAD or the controller of AppWrappers 1.2 is there is not known: neither Deployments nor definitions may be listed.");
            return;
        }
        out.line(0, "Neither Kueue, MCAD nor the controller of AppWrappers 1.2 was found: no Deployment and no definition of theirs.");
        out.line(0, "Nothing has to be taken over: install Muster as docs/install.md says.");
    }
}

fn predictions(out: &mut Sections, forecast: &Forecast) {
    out.heading("Forecast: what a controller with these settings would decide now");
    let all = match forecast {
        Forecast::Made(all) => all,
        Forecast::Skipped(why) => {
            out.line(1, &format!("not made: {why}"));
            out.line(
                2,
                "-> run this check with the verbs list and watch for what a controller reads, as cluster-admin has them",
            );
            return;
        }
    };
    if all.is_empty() {
        out.line(1, "there are no gangs");
        return;
    }
    for kind in ["AppWrapper", "Workload"] {
        let counted = Fate::ALL.into_iter().filter_map(|fate| {
            let of = forecast.of_fate(fate);
            let count = of.iter().filter(|known| known.subject.kind == kind).count();
            (count > 0).then(|| format!("{} ({})", fate.text(), grouped(count)))
        });
        let counted: Vec<String> = counted.collect();
        if !counted.is_empty() {
            out.line(1, &format!("{kind}: {}", counted.join(", ")));
        }
    }
    if forecast.of_fate(Fate::Evicted).is_empty() {
        out.line(1, "no gang that runs would be evicted");
    } else {
        let more =
            "others may follow when these have ended, because a queue makes room for one gang at a time";
        out.line(1, &format!("gangs that run would be evicted: {more}"));
    }
    for fate in Fate::ALL.into_iter().filter(|fate| fate.is_named()) {
        reasons(out, fate, &forecast.of_fate(fate));
    }
    let starting: Vec<String> =
        forecast.of_fate(Fate::Starts).iter().map(|known| known.subject.named()).collect();
    if !starting.is_empty() {
        out.line(1, &format!("would start at once: {}", listed(&starting)));
    }
}

/// The gangs of a fate by their reason.
fn reasons(out: &mut Sections, fate: Fate, gangs: &[&Prediction]) {
    let mut groups: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    for gang in gangs {
        groups.entry((&gang.subject.kind, &gang.why)).or_default().push(gang.subject.named());
    }
    for ((kind, why), names) in groups {
        out.line(1, &format!("{kind} {} {}: {why}", listed(&names), fate.text()));
    }
}

/// The first names, and how many there are beside.
fn listed(names: &[String]) -> String {
    let first = names.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => first,
        more => format!("{first} and {} more", grouped(more)),
    }
}

/// A number with its thousands apart.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Lines in sections, without what an author may have written to change a terminal.
#[derive(Default)]
struct Sections(String);

impl Sections {
    fn heading(&mut self, text: &str) {
        if !self.0.is_empty() {
            self.0.push('\n');
        }
        self.line(0, text);
    }

    fn line(&mut self, depth: usize, text: &str) {
        let is_shown = |char: &char| !char.is_control() || *char == '\n';
        let text: String = text.chars().filter(is_shown).collect();
        writeln!(self.0, "{}{text}", "  ".repeat(depth)).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_their_thousands_apart() {
        for (number, expected) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), expected);
        }
    }

    #[test]
    fn five_names_are_listed_and_the_others_counted() {
        let names: Vec<String> = (1..=2_000).map(|number| format!("n{number}")).collect();
        assert_eq!(listed(&names[..2]), "n1, n2");
        assert_eq!(listed(&names), "n1, n2, n3, n4, n5 and 1,995 more");
    }
}
