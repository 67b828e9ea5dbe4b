//! Ranks adapters, removes duplicates, and makes the automatic choice.

use super::requirements::join_shortfalls;
use super::{AdapterInfo, AdapterKind, Api};

/// Returns indices into `infos` in rank order, without duplicates: discrete, integrated and virtual
/// GPUs, GPUs of unknown kind, then software adapters.
///
/// If two APIs report the same GPU, the adapter of the more capable API is kept. Identical GPUs are
/// all kept.
pub fn rank(infos: &[AdapterInfo]) -> Vec<usize> {
    let mut order = deduplicate(infos);
    sort(&mut order, &|i| (infos[i].kind as usize, infos[i].api as usize, i));
    order
}

/// Sorts indices by a key. A function of its own, because each sort makes a web page larger.
fn sort(indices: &mut [usize], key: &dyn Fn(usize) -> (usize, usize, usize)) {
    indices.sort_unstable_by_key(|&i| key(i));
}

/// The result of the automatic choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The index of the adapter, or `None` for the CPU.
    pub adapter: Option<usize>,
    /// The reason, for messages.
    pub reason: String,
}

/// Chooses the first GPU among the ranked adapters that meets the requirements, or else the CPU.
pub fn choose<A: AsRef<AdapterInfo>>(ranked: &[A]) -> Choice {
    let is_gpu = |info: &&AdapterInfo| info.kind != AdapterKind::Software;
    let gpus: Vec<&AdapterInfo> = ranked.iter().map(AsRef::as_ref).filter(is_gpu).collect();
    let usable = |info: &&AdapterInfo| info.limits.shortfalls().is_empty();
    let adapter = gpus.iter().position(usable);

    let mut reason = match adapter {
        Some(index) => {
            let kind = gpus[index].kind;
            let same_kind = gpus.iter().filter(|gpu| gpu.kind == kind && usable(gpu));
            reason_for(kind, same_kind.count())
        }
        None if gpus.is_empty() => "no GPU was found".to_owned(),
        None => "no GPU meets the requirements of the kernels".to_owned(),
    };
    for gpu in &gpus[..adapter.unwrap_or(gpus.len())] {
        let shortfalls = join_shortfalls(&gpu.limits.shortfalls());
        reason += &format!("; {} is skipped ({shortfalls})", gpu.name);
    }
    if let (None, Some(software)) = (adapter, ranked.get(gpus.len())) {
        let name = &software.as_ref().name;
        reason += &format!("; the software adapter {name} is used only if `software` is selected");
    }
    Choice { adapter, reason }
}

/// Returns the reason for choosing the first of `count` usable GPUs of a kind.
fn reason_for(kind: AdapterKind, count: usize) -> String {
    let (gpu, gpus) = match kind {
        AdapterKind::Other => ("GPU of unknown kind".to_owned(), "GPUs of unknown kind".to_owned()),
        kind => (format!("{kind} GPU"), format!("{kind} GPUs")),
    };
    let no_better_kind = match kind {
        AdapterKind::Discrete | AdapterKind::Software => "",
        AdapterKind::Integrated => ", and no discrete GPU can be used",
        AdapterKind::Virtual => ", and no discrete or integrated GPU can be used",
        AdapterKind::Other => ", and no discrete, integrated or virtual GPU can be used",
    };
    match count {
        1 => format!("the only {gpu}{no_better_kind}"),
        _ => format!("the first of {count} {gpus}{no_better_kind}"),
    }
}

/// A physical GPU, which several adapters may represent.
struct PhysicalGpu {
    /// The index of its adapter with the most capable API.
    adapter: usize,
    /// The APIs that expose this GPU.
    apis: Vec<Api>,
}

/// Returns the index of one adapter for each physical GPU.
fn deduplicate(infos: &[AdapterInfo]) -> Vec<usize> {
    let bus_ids: Vec<Option<&str>> = (0..infos.len()).map(|i| reliable_bus_id(infos, i)).collect();

    // The most capable API is first, so that its adapter is kept. Within an API, adapters with a
    // bus id are first: an adapter without one must not be matched by name to a GPU whose bus id
    // identifies another adapter.
    let mut order: Vec<usize> = (0..infos.len()).collect();
    sort(&mut order, &|i| (infos[i].api as usize, usize::from(bus_ids[i].is_none()), i));

    let mut gpus: Vec<PhysicalGpu> = Vec::new();
    for i in order {
        let api = infos[i].api;
        let same_bus = |gpu: &PhysicalGpu| {
            bus_ids[i].is_some()
                && bus_ids[i] == bus_ids[gpu.adapter]
                && same_model(&infos[i], &infos[gpu.adapter])
        };
        let same_name = |gpu: &PhysicalGpu| {
            (bus_ids[i].is_none() || bus_ids[gpu.adapter].is_none())
                && !gpu.apis.contains(&api)
                && same_model(&infos[i], &infos[gpu.adapter])
                && infos[i].name == infos[gpu.adapter].name
        };
        let duplicate = gpus.iter().position(same_bus);
        match duplicate.or_else(|| gpus.iter().position(same_name)) {
            Some(gpu) => gpus[gpu].apis.push(api),
            None => gpus.push(PhysicalGpu { adapter: i, apis: vec![api] }),
        }
    }
    gpus.into_iter().map(|gpu| gpu.adapter).collect()
}

/// Returns the bus id of an adapter if it identifies one GPU.
///
/// Direct3D 12 looks up the id by model, so identical GPUs all have the id of the first one. An id
/// that occurs twice there is unreliable. Vulkan reads the id from the GPU, so an id that occurs
/// twice is one GPU with two drivers.
fn reliable_bus_id(infos: &[AdapterInfo], index: usize) -> Option<&str> {
    let id = infos[index].pci_bus_id.as_deref()?;
    let api = infos[index].api;
    let same_id =
        |other: &&AdapterInfo| other.api == api && other.pci_bus_id.as_deref() == Some(id);
    let is_reliable = api == Api::Vulkan || infos.iter().filter(same_id).count() == 1;
    is_reliable.then_some(id)
}

/// Returns whether two adapters are of the same model, by PCI ids, or by name if either has no ids.
fn same_model(a: &AdapterInfo, b: &AdapterInfo) -> bool {
    let has_no_ids = |info: &AdapterInfo| info.vendor_id == 0 && info.device_id == 0;
    if has_no_ids(a) || has_no_ids(b) {
        a.name == b.name
    } else {
        (a.vendor_id, a.device_id) == (b.vendor_id, b.device_id)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Limits;
    use super::*;

    fn adapter(name: &str, kind: AdapterKind, api: Api, bus: &str) -> AdapterInfo {
        AdapterInfo {
            name: name.to_owned(),
            vendor_id: 0x1002,
            // Equal names give equal models.
            device_id: name.bytes().map(u32::from).sum(),
            kind,
            api,
            pci_bus_id: Some(bus.to_owned()).filter(|bus| !bus.is_empty()),
            ..AdapterInfo::default()
        }
    }

    fn discrete(api: Api, bus: &str) -> AdapterInfo {
        adapter("Radeon", AdapterKind::Discrete, api, bus)
    }

    fn integrated(api: Api, bus: &str) -> AdapterInfo {
        adapter("Graphics", AdapterKind::Integrated, api, bus)
    }

    fn software() -> AdapterInfo {
        adapter("llvmpipe", AdapterKind::Software, Api::Vulkan, "")
    }

    fn ranked(infos: &[AdapterInfo]) -> Vec<AdapterInfo> {
        rank(infos).into_iter().map(|i| infos[i].clone()).collect()
    }

    fn choice(infos: &[AdapterInfo]) -> (Option<usize>, String) {
        let Choice { adapter, reason } = choose(&ranked(infos));
        (adapter, reason)
    }

    #[test]
    fn a_discrete_gpu_is_chosen_before_an_integrated_one() {
        let laptop = [
            software(),
            integrated(Api::Vulkan, "0000:00:02.0"),
            discrete(Api::Vulkan, "0000:01:00.0"),
        ];
        assert_eq!(rank(&laptop), [2, 1, 0]);
        assert_eq!(choice(&laptop), (Some(0), "the only discrete GPU".into()));
    }

    #[test]
    fn identical_gpus_are_both_kept() {
        let on_two_buses =
            [discrete(Api::Vulkan, "0000:01:00.0"), discrete(Api::Vulkan, "0000:02:00.0")];
        assert_eq!(rank(&on_two_buses), [0, 1]);
        let reason = "the first of 2 discrete GPUs";
        assert_eq!(choice(&on_two_buses), (Some(0), reason.into()));

        let on_unknown_buses = [discrete(Api::Vulkan, ""), discrete(Api::Vulkan, "")];
        assert_eq!(rank(&on_unknown_buses), [0, 1]);

        let through_two_apis =
            [discrete(Api::Dx12, "0000:01:00.0"), discrete(Api::Vulkan, "0000:02:00.0")];
        assert_eq!(rank(&through_two_apis), [1, 0]);
    }

    #[test]
    fn a_gpu_exposed_by_two_apis_is_kept_once_with_the_more_capable_api() {
        for bus in ["", "0000:01:00.0"] {
            let exposed_twice = [discrete(Api::Dx12, bus), discrete(Api::Vulkan, bus)];
            assert_eq!(rank(&exposed_twice), [1], "bus {bus:?}");
        }
        let one_with_bus_id = [discrete(Api::Vulkan, "0000:01:00.0"), discrete(Api::Dx12, "")];
        assert_eq!(rank(&one_with_bus_id), [0]);
    }

    #[test]
    fn adapters_without_pci_ids_are_matched_by_name() {
        let mut metal = discrete(Api::Metal, "");
        (metal.vendor_id, metal.device_id) = (0, 0);
        assert_eq!(rank(&[metal.clone(), discrete(Api::Vulkan, "")]), [1]);
        assert_eq!(rank(&[metal, integrated(Api::Vulkan, "")]), [0, 1]);
    }

    #[test]
    fn two_identical_gpus_exposed_by_two_apis_are_two_gpus() {
        let buses = ["0000:01:00.0", "0000:02:00.0"];
        // Correct bus ids, no bus ids, the first bus id twice (Direct3D 12), and only one bus id.
        for dx12 in [buses, ["", ""], [buses[0], buses[0]], ["", buses[0]]] {
            for vulkan in [buses, ["", ""]] {
                let adapters = [
                    discrete(Api::Dx12, dx12[0]),
                    discrete(Api::Dx12, dx12[1]),
                    discrete(Api::Vulkan, vulkan[0]),
                    discrete(Api::Vulkan, vulkan[1]),
                ];
                assert_eq!(rank(&adapters), [2, 3], "dx12 {dx12:?}, vulkan {vulkan:?}");
            }
        }
    }

    #[test]
    fn a_gpu_with_two_vulkan_drivers_is_one_gpu() {
        let mut second_driver = discrete(Api::Vulkan, "0000:01:00.0");
        second_driver.name = "Radeon (another driver)".into();
        let adapters = [discrete(Api::Vulkan, "0000:01:00.0"), second_driver];
        assert_eq!(rank(&adapters), [0]);
    }

    #[test]
    fn a_software_adapter_is_never_chosen_automatically() {
        assert_eq!(rank(&[software()]), [0]);
        let reason = "no GPU was found; the software adapter llvmpipe is used only if \
            `software` is selected";
        assert_eq!(choice(&[software()]), (None, reason.into()));
    }

    #[test]
    fn the_cpu_is_chosen_without_adapters() {
        assert!(rank(&[]).is_empty());
        assert_eq!(choice(&[]), (None, "no GPU was found".into()));
    }

    #[test]
    fn a_virtual_gpu_is_chosen_if_it_is_the_only_gpu() {
        let machine = [software(), adapter("vGPU", AdapterKind::Virtual, Api::Vulkan, "")];
        assert_eq!(rank(&machine), [1, 0]);
        let reason = "the only virtual GPU, and no discrete or integrated GPU can be used";
        assert_eq!(choice(&machine), (Some(0), reason.into()));
    }

    #[test]
    fn a_gpu_below_the_requirements_is_skipped() {
        let mut unusable = discrete(Api::Vulkan, "");
        unusable.limits = Limits { storage_buffers_per_stage: 4, ..Limits::default() };
        let skipped = "Radeon is skipped (storage buffers per shader stage: has 4, needs 8)";

        let reason = format!("the only integrated GPU, and no discrete GPU can be used; {skipped}");
        let laptop = [unusable.clone(), integrated(Api::Vulkan, "")];
        assert_eq!(choice(&laptop), (Some(1), reason));

        let reason = format!("no GPU meets the requirements of the kernels; {skipped}");
        assert_eq!(choice(&[unusable]), (None, reason));
    }
}
