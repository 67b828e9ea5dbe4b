//! The devices that are there, listed for a person.

use std::fmt;

use super::{AdapterInfo, AdapterKind, WgslDevice};

/// The devices that are there. `Display` gives one aligned line for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceList(pub Vec<ListedDevice>);

/// One line of a [`DeviceList`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedDevice {
    /// The index of the adapter; `None` for the CPU.
    pub index: Option<usize>,
    /// The words that name it, the preferred one first.
    pub selectors: Vec<WgslDevice>,
    /// The adapter's name.
    pub name: String,
    /// Its kind.
    pub kind: String,
    /// The API it is reached through.
    pub api: String,
}

impl DeviceList {
    /// Lists ranked adapters, and the CPU after them.
    pub fn of<F: AsRef<AdapterInfo>>(ranked: &[F]) -> Self {
        let adapters = ranked.iter().enumerate().map(|(index, info)| {
            let info = info.as_ref();
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
            name: "no GPU: every op on the CPU".to_owned(),
            kind: "cpu".to_owned(),
            api: "-".to_owned(),
        };
        Self(adapters.chain([cpu]).collect())
    }
}

impl ListedDevice {
    /// The selectors, separated by commas; `-` where no word names the device.
    pub fn selector_list(&self) -> String {
        if self.selectors.is_empty() {
            return "-".to_owned();
        }
        let words: Vec<String> = self.selectors.iter().map(WgslDevice::to_string).collect();
        words.join(", ")
    }
}

impl fmt::Display for DeviceList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heading = ["", "device", "name", "kind", "API"].map(str::to_owned);
        let lines = self.0.iter().map(|device| {
            let index = device.index.map_or("-".to_owned(), |i| i.to_string());
            let (name, kind, api) = (&device.name, &device.kind, &device.api);
            [index, device.selector_list(), name.clone(), kind.clone(), api.clone()]
        });
        let lines: Vec<[String; 5]> = [heading].into_iter().chain(lines).collect();
        let width = |column: usize| {
            let widths = lines.iter().map(|line| line[column].chars().count());
            widths.max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..4).map(width).collect();
        for (row, [index, words, name, kind, api]) in lines.iter().enumerate() {
            if row > 0 {
                writeln!(f)?;
            }
            let [w0, w1, w2, w3] = [widths[0], widths[1], widths[2], widths[3]];
            write!(f, "  {index:w0$}  {words:w1$}  {name:w2$}  {kind:w3$}  {api}")?;
        }
        Ok(())
    }
}

/// The words that name the adapter at `index`, the preferred one first.
///
/// `software` reaches the first software adapter only, so a second one has no word.
pub fn selectors<F: AsRef<AdapterInfo>>(ranked: &[F], index: usize) -> Vec<WgslDevice> {
    let kind_of = |i: usize| ranked.get(i).map(|info: &F| info.as_ref().kind);
    let Some(kind) = kind_of(index) else {
        return Vec::new();
    };
    let among_its_kind = (0..index).filter(|&i| kind_of(i) == Some(kind)).count();
    match kind {
        AdapterKind::Discrete => vec![WgslDevice::Gpu(index), WgslDevice::Discrete(among_its_kind)],
        AdapterKind::Integrated => {
            vec![WgslDevice::Gpu(index), WgslDevice::Integrated(among_its_kind)]
        }
        AdapterKind::Virtual => vec![WgslDevice::Gpu(index), WgslDevice::Virtual(among_its_kind)],
        AdapterKind::Other => vec![WgslDevice::Gpu(index)],
        AdapterKind::Software if among_its_kind == 0 => vec![WgslDevice::Software],
        AdapterKind::Software => Vec::new(),
    }
}
