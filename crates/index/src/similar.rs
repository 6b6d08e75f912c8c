//! The name that was meant by one that does not exist.

/// So many characters may be wrong, missing or too many, or two neighbours be exchanged.
const ERRORS_MAX: usize = 2;

/// The known name that differs least from `name`, if it differs little.
pub(crate) fn similar<'k>(name: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let most = ERRORS_MAX.min(name.chars().count() / 4);
    let near = known.into_iter().map(|known| (distance(name, known), known));
    near.filter(|(errors, _)| (1..=most).contains(errors)).min().map(|(_, known)| known)
}

/// The number of errors between two names (optimal string alignment).
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    if one.len().abs_diff(other.len()) > ERRORS_MAX {
        return usize::MAX;
    }
    let mut rows: [Vec<usize>; 3] = [Vec::new(), Vec::new(), (0..=other.len()).collect()];
    for (i, a) in one.iter().enumerate() {
        rows.rotate_left(1);
        let [before, last, row] = &mut rows;
        *row = vec![i + 1];
        for (j, b) in other.iter().enumerate() {
            let mut least = (last[j] + usize::from(a != b)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == other[j - 1] && one[i - 1] == *b {
                least = least.min(before[j - 1] + 1);
            }
            row.push(least);
        }
    }
    rows[2].last().copied().unwrap_or_default()
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
