//! Topology requests of pod sets as words.

use model::{PodSet, TopologyMode, TopologyRequest, TopologySlice};

/// Parses a word of a topology request into a pod set. `None` when the word is of another kind; false when its value
/// is invalid.
pub(crate) fn read(word: &str, pod_set: &mut PodSet) -> Option<bool> {
    if let Some(mode) = word.strip_prefix("topology:") {
        let mode = match mode.split_once('=') {
            Some(("required", level)) => TopologyMode::Required(level.to_owned()),
            Some(("preferred", level)) => TopologyMode::Preferred(level.to_owned()),
            None if mode == "unconstrained" => TopologyMode::Unconstrained,
            Some(_) | None => return Some(false),
        };
        request(pod_set).mode = mode;
        return Some(true);
    }
    if let Some(slice) = word.strip_prefix("slice:") {
        let slice = slice.split_once('=').and_then(|(size, level)| Some((size.parse().ok()?, level)));
        let Some((size, level)) = slice else { return Some(false) };
        request(pod_set).slices.push(TopologySlice { size, level: level.to_owned() });
        return Some(true);
    }
    None
}

fn request(pod_set: &mut PodSet) -> &mut TopologyRequest {
    pod_set.topology.get_or_insert_default()
}

/// Renders a topology request as words that [`read`] parses.
pub(crate) fn words(pod_set: &PodSet) -> Vec<String> {
    let Some(TopologyRequest { mode, slices }) = &pod_set.topology else { return Vec::new() };
    let mode = match mode {
        TopologyMode::Required(level) => format!("topology:required={level}"),
        TopologyMode::Preferred(level) => format!("topology:preferred={level}"),
        TopologyMode::Unconstrained => "topology:unconstrained".to_owned(),
    };
    let slices = slices.iter().map(|TopologySlice { size, level }| format!("slice:{size}={level}"));
    std::iter::once(mode).chain(slices).collect()
}
