//! Lists the devices of this machine as text.

use std::fmt;

use super::{AdapterInfo, AdapterKind, WgslDevice};

/// The devices of this machine. `Display` prints a table with one row per device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceList(pub Vec<ListedDevice>);

/// One row of a [`DeviceList`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedDevice {
    /// The index in the ranked list of adapters; `None` for the CPU.
    pub index: Option<usize>,
    /// The selectors of the device, the canonical one first.
    pub selectors: Vec<WgslDevice>,
    /// The adapter's name.
    pub name: String,
    /// The adapter's kind.
    pub kind: String,
    /// The API that exposes the adapter.
    pub api: String,
}

impl DeviceList {
    /// Lists the ranked adapters, followed by the CPU.
    pub fn new<A: AsRef<AdapterInfo>>(ranked: &[A]) -> Self {
        let adapters = ranked.iter().enumerate().map(|(index, adapter)| {
            let info = adapter.as_ref();
            ListedDevice {
                index: Some(index),
                selectors: selectors(ranked, index),
                name: info.name.clone(),
                kind: info.kind.to_string(),
                api: info.api.to_string(),
            }
        });
        let cpu = ListedDevice {
            index: None,
            selectors: vec![WgslDevice::Cpu],
            name: "all ops run on the CPU".to_owned(),
            kind: "cpu".to_owned(),
            api: "-".to_owned(),
        };
        Self(adapters.chain([cpu]).collect())
    }
}

impl ListedDevice {
    /// Returns the selectors, separated by commas, or `-` if there are none.
    pub fn selector_list(&self) -> String {
        if self.selectors.is_empty() {
            return "-".to_owned();
        }
        let selectors: Vec<String> = self.selectors.iter().map(WgslDevice::to_string).collect();
        selectors.join(", ")
    }
}

impl fmt::Display for DeviceList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heading = ["", "device", "name", "kind", "API"].map(str::to_owned);
        let rows = self.0.iter().map(|device| {
            let index = device.index.map_or("-".to_owned(), |i| i.to_string());
            let (name, kind, api) = (&device.name, &device.kind, &device.api);
            [index, device.selector_list(), name.clone(), kind.clone(), api.clone()]
        });
        let rows: Vec<[String; 5]> = [heading].into_iter().chain(rows).collect();
        let width = |column: usize| {
            let widths = rows.iter().map(|row| row[column].chars().count());
            widths.max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..4).map(width).collect();
        for (row, [index, selectors, name, kind, api]) in rows.iter().enumerate() {
            if row > 0 {
                writeln!(f)?;
            }
            let [w0, w1, w2, w3] = [widths[0], widths[1], widths[2], widths[3]];
            write!(f, "  {index:w0$}  {selectors:w1$}  {name:w2$}  {kind:w3$}  {api}")?;
        }
        Ok(())
    }
}

/// Returns the selectors of the adapter at `index`, the canonical one first.
///
/// The list is empty for a second software adapter: `software` selects only the first.
pub fn selectors<A: AsRef<AdapterInfo>>(ranked: &[A], index: usize) -> Vec<WgslDevice> {
    let kind_of = |i: usize| ranked.get(i).map(|adapter: &A| adapter.as_ref().kind);
    let Some(kind) = kind_of(index) else {
        return Vec::new();
    };
    let index_in_kind = (0..index).filter(|&i| kind_of(i) == Some(kind)).count();
    match kind {
        AdapterKind::Discrete => vec![WgslDevice::Gpu(index), WgslDevice::Discrete(index_in_kind)],
        AdapterKind::Integrated => {
            vec![WgslDevice::Gpu(index), WgslDevice::Integrated(index_in_kind)]
        }
        AdapterKind::Virtual => vec![WgslDevice::Gpu(index), WgslDevice::Virtual(index_in_kind)],
        AdapterKind::Other => vec![WgslDevice::Gpu(index)],
        AdapterKind::Software if index_in_kind == 0 => vec![WgslDevice::Software],
        AdapterKind::Software => Vec::new(),
    }
}
