//! The order of adapters, without repeats, and the automatic choice among them.

use super::requirements::joined;
use super::{AdapterInfo, AdapterKind, Api};

/// Indices into `info`, best first and each GPU once: discrete, integrated, virtual, of unknown
/// kind, and then the software adapters.
///
/// A GPU that is seen through two APIs is kept through the more capable one. Equal cards all stay.
pub fn rank(info: &[AdapterInfo]) -> Vec<usize> {
    let mut order = without_repeats(info);
    order.sort_by_key(|&i| (info[i].kind, info[i].api, i));
    order
}

/// What the automatic choice takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The index of the adapter, or `None` for the CPU.
    pub adapter: Option<usize>,
    /// Why, in words for a person.
    pub reason: String,
}

/// The automatic choice among ranked adapters: the first GPU whose limits suffice, else the CPU.
pub fn choose<F: AsRef<AdapterInfo>>(ranked: &[F]) -> Choice {
    let is_gpu = |info: &&AdapterInfo| info.kind != AdapterKind::Software;
    let gpus: Vec<&AdapterInfo> = ranked.iter().map(AsRef::as_ref).filter(is_gpu).collect();
    let usable = |info: &&AdapterInfo| info.limits.shortfalls().is_empty();
    let adapter = gpus.iter().position(usable);

    let mut reason = match adapter {
        Some(index) => {
            let kind = gpus[index].kind;
            let alike = gpus.iter().filter(|gpu| gpu.kind == kind && usable(gpu));
            place_among(alike.count(), kind)
        }
        None if gpus.is_empty() => "no GPU was found".to_owned(),
        None => "none of the GPUs here can be used".to_owned(),
    };
    for gpu in &gpus[..adapter.unwrap_or(gpus.len())] {
        let lacks = joined(&gpu.limits.shortfalls());
        reason += &format!("; {} is passed over ({lacks})", gpu.name);
    }
    if let (None, Some(software)) = (adapter, ranked.get(gpus.len())) {
        let name = &software.as_ref().name;
        reason += &format!("; the software adapter {name} runs only when asked for as `software`");
    }
    Choice { adapter, reason }
}

fn place_among(count: usize, kind: AdapterKind) -> String {
    let gpu = match kind {
        AdapterKind::Other => "GPU of unknown kind".to_owned(),
        kind => format!("{kind} GPU"),
    };
    let missing = match kind {
        AdapterKind::Discrete | AdapterKind::Software => "",
        AdapterKind::Integrated => ", and no discrete one can be used",
        AdapterKind::Virtual => ", and no discrete or integrated one can be used",
        AdapterKind::Other => ", and no discrete, integrated or virtual one can be used",
    };
    match count {
        1 => format!("the only {gpu}{missing}"),
        _ => format!("the first of {count} {gpu}s{missing}"),
    }
}

/// A card, known by the adapter that is kept for it and by the APIs it was seen through.
struct Card {
    kept: usize,
    seen: Vec<Api>,
}

fn without_repeats(info: &[AdapterInfo]) -> Vec<usize> {
    let bus_ids: Vec<Option<&str>> = (0..info.len()).map(|i| bus_id(info, i)).collect();

    // The most capable API comes first and so is kept. Within an API the adapters with a bus id
    // come first, lest one without claims the card that another one can prove to be.
    let mut arrival: Vec<usize> = (0..info.len()).collect();
    arrival.sort_by_key(|&i| (info[i].api, bus_ids[i].is_none(), i));

    let mut cards: Vec<Card> = Vec::new();
    for i in arrival {
        let api = info[i].api;
        let by_bus = |card: &Card| {
            bus_ids[i].is_some()
                && bus_ids[i] == bus_ids[card.kept]
                && same_model(&info[i], &info[card.kept])
        };
        let by_name = |card: &Card| {
            (bus_ids[i].is_none() || bus_ids[card.kept].is_none())
                && !card.seen.contains(&api)
                && same_model(&info[i], &info[card.kept])
                && info[i].name == info[card.kept].name
        };
        let known = cards.iter().position(by_bus);
        match known.or_else(|| cards.iter().position(by_name)) {
            Some(card) => cards[card].seen.push(api),
            None => cards.push(Card { kept: i, seen: vec![api] }),
        }
    }
    cards.into_iter().map(|card| card.kept).collect()
}

/// The bus id of an adapter, if it can be relied on.
///
/// Under Direct3D 12 the id is looked up by model, so equal cards all get the id of the first: an
/// id that is given twice tells nothing there. Vulkan reads it from the card: there an id given
/// twice is one card with two drivers.
fn bus_id(info: &[AdapterInfo], index: usize) -> Option<&str> {
    let id = info[index].pci_bus_id.as_deref()?;
    let api = info[index].api;
    let same = |other: &&AdapterInfo| other.api == api && other.pci_bus_id.as_deref() == Some(id);
    let told_apart = api == Api::Vulkan || info.iter().filter(same).count() == 1;
    told_apart.then_some(id)
}

/// Whether two adapters are of one model, by number, or by name where an API gives no numbers.
fn same_model(a: &AdapterInfo, b: &AdapterInfo) -> bool {
    let unnumbered = |info: &AdapterInfo| info.vendor_id == 0 && info.device_id == 0;
    if unnumbered(a) || unnumbered(b) {
        a.name == b.name
    } else {
        (a.vendor_id, a.device_id) == (b.vendor_id, b.device_id)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Limits;
    use super::*;

    fn card(name: &str, kind: AdapterKind, api: Api, bus: &str) -> AdapterInfo {
        AdapterInfo {
            name: name.to_owned(),
            vendor_id: 0x1002,
            // Equal names are equal models here.
            device_id: name.bytes().map(u32::from).sum(),
            kind,
            api,
            pci_bus_id: Some(bus.to_owned()).filter(|bus| !bus.is_empty()),
            ..AdapterInfo::default()
        }
    }

    fn discrete(api: Api, bus: &str) -> AdapterInfo {
        card("Radeon", AdapterKind::Discrete, api, bus)
    }

    fn integrated(api: Api, bus: &str) -> AdapterInfo {
        card("Graphics", AdapterKind::Integrated, api, bus)
    }

    fn software() -> AdapterInfo {
        card("llvmpipe", AdapterKind::Software, Api::Vulkan, "")
    }

    fn ranked(info: &[AdapterInfo]) -> Vec<AdapterInfo> {
        rank(info).into_iter().map(|i| info[i].clone()).collect()
    }

    fn choice(info: &[AdapterInfo]) -> (Option<usize>, String) {
        let Choice { adapter, reason } = choose(&ranked(info));
        (adapter, reason)
    }

    #[test]
    fn a_laptop_takes_its_discrete_gpu() {
        let laptop = [
            software(),
            integrated(Api::Vulkan, "0000:00:02.0"),
            discrete(Api::Vulkan, "0000:01:00.0"),
        ];
        assert_eq!(rank(&laptop), [2, 1, 0]);
        assert_eq!(choice(&laptop), (Some(0), "the only discrete GPU".into()));
    }

    #[test]
    fn two_equal_cards_both_stay() {
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
    fn one_gpu_through_two_apis_is_kept_through_the_more_capable_one() {
        for bus in ["", "0000:01:00.0"] {
            let seen_twice = [discrete(Api::Dx12, bus), discrete(Api::Vulkan, bus)];
            assert_eq!(rank(&seen_twice), [1], "bus {bus:?}");
        }
        let bus_known_to_one = [discrete(Api::Vulkan, "0000:01:00.0"), discrete(Api::Dx12, "")];
        assert_eq!(rank(&bus_known_to_one), [0]);
    }

    #[test]
    fn an_api_without_model_numbers_is_matched_by_name() {
        let mut metal = discrete(Api::Metal, "");
        (metal.vendor_id, metal.device_id) = (0, 0);
        assert_eq!(rank(&[metal.clone(), discrete(Api::Vulkan, "")]), [1]);
        assert_eq!(rank(&[metal, integrated(Api::Vulkan, "")]), [0, 1]);
    }

    #[test]
    fn two_equal_cards_through_two_apis_are_two() {
        let buses = ["0000:01:00.0", "0000:02:00.0"];
        // As it should be; without bus ids; and as Direct3D 12 tells it: the first bus twice.
        for dx12 in [buses, ["", ""], [buses[0], buses[0]], ["", buses[0]]] {
            for vulkan in [buses, ["", ""]] {
                let seen = [
                    discrete(Api::Dx12, dx12[0]),
                    discrete(Api::Dx12, dx12[1]),
                    discrete(Api::Vulkan, vulkan[0]),
                    discrete(Api::Vulkan, vulkan[1]),
                ];
                assert_eq!(rank(&seen), [2, 3], "dx12 {dx12:?}, vulkan {vulkan:?}");
            }
        }
    }

    #[test]
    fn one_card_with_two_vulkan_drivers_is_one() {
        let mut second_driver = discrete(Api::Vulkan, "0000:01:00.0");
        second_driver.name = "Radeon (another driver)".into();
        let seen = [discrete(Api::Vulkan, "0000:01:00.0"), second_driver];
        assert_eq!(rank(&seen), [0]);
    }

    #[test]
    fn a_software_adapter_is_never_the_automatic_choice() {
        assert_eq!(rank(&[software()]), [0]);
        let reason = "no GPU was found; the software adapter llvmpipe runs only when asked for as `software`";
        assert_eq!(choice(&[software()]), (None, reason.into()));
    }

    #[test]
    fn nothing_leaves_the_cpu() {
        assert!(rank(&[]).is_empty());
        assert_eq!(choice(&[]), (None, "no GPU was found".into()));
    }

    #[test]
    fn a_virtual_gpu_is_taken_when_it_is_the_only_one() {
        let machine = [software(), card("vGPU", AdapterKind::Virtual, Api::Vulkan, "")];
        assert_eq!(rank(&machine), [1, 0]);
        let reason = "the only virtual GPU, and no discrete or integrated one can be used";
        assert_eq!(choice(&machine), (Some(0), reason.into()));
    }

    #[test]
    fn a_gpu_whose_limits_are_too_low_is_passed_over() {
        let mut weak = discrete(Api::Vulkan, "");
        weak.limits = Limits { storage_buffers_per_stage: 4, ..Limits::default() };
        let lacks = "Radeon is passed over (storage buffers per shader stage: has 4, needs 8)";

        let reason = format!("the only integrated GPU, and no discrete one can be used; {lacks}");
        let laptop = [weak.clone(), integrated(Api::Vulkan, "")];
        assert_eq!(choice(&laptop), (Some(1), reason));

        let reason = format!("none of the GPUs here can be used; {lacks}");
        assert_eq!(choice(&[weak]), (None, reason));
    }
}
