//! The name that was meant by one that does not exist.

use strsim::osa_distance;

/// So many characters may be wrong, missing or too many, or two neighbours be exchanged (optimal string alignment).
const ERRORS_MAX: usize = 2;

/// The known name that differs least from `name`, if it differs little.
pub(crate) fn similar<'k>(name: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let most = ERRORS_MAX.min(name.chars().count() / 4);
    let near = known.into_iter().map(|known| (osa_distance(name, known), known));
    near.filter(|(errors, _)| (1..=most).contains(errors)).min().map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_few_errors_is_taken_for_the_known_one_that_it_resembles_most() {
        let known = ["nvidia.com/gpu", "amd.com/gpu", "default", "spot", "memory", "cpu", "größe"];
        for (name, expected) in [
            ("nvidia.com/gpus", Some("nvidia.com/gpu")),
            ("nvidia.com/gup", Some("nvidia.com/gpu")),
            ("nvidai.com/gpu", Some("nvidia.com/gpu")),
            ("defualt", Some("default")),
            ("dfault", Some("default")),
            ("spott", Some("spot")),
            ("größ", Some("größe")),
            ("default", None),
            ("intel.com/gpu", None),
            ("gpu", None),
            ("on-demand", None),
            ("", None),
            ("x", None),
        ] {
            assert_eq!(similar(name, known), expected, "{name}");
        }
    }
}
