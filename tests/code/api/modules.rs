//! The modules of the library, and what the names in them stand for.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use quote::ToTokens;
use syn::{Attribute, Item, ItemImpl, UseTree};

/// A module: its path below the crate, and its items.
pub struct Module {
    pub path: Vec<String>,
    pub items: Vec<Item>,
    /// What its items define.
    names: BTreeSet<String>,
    /// The paths that it imports, each with its name here.
    imports: Vec<(Vec<String>, String)>,
}

impl Module {
    fn new(path: Vec<String>, items: Vec<Item>) -> Self {
        let names = items.iter().filter_map(name_of).collect();
        let uses = items.iter().filter_map(|item| match item {
            Item::Use(import) => Some(imports(&import.tree)),
            _ => None,
        });
        let imports = uses.flatten().collect();
        Self { path, items, names, imports }
    }

    /// Returns the path of a module in this one.
    pub fn child(&self, name: &str) -> Vec<String> {
        [&self.path[..], &[name.to_owned()]].concat()
    }
}

/// The place where something is defined.
pub struct Name<'a> {
    pub module: &'a Module,
    pub name: String,
}

/// All modules of a crate.
pub struct Crate(BTreeMap<Vec<String>, Module>);

/// Returns whether an item is for tests, or there with the feature `internals` only.
pub fn is_internal(item: &Item) -> bool {
    is_internal_by(attributes(item))
}

/// The same of attributes.
pub fn is_internal_by(attributes: &[Attribute]) -> bool {
    attributes.iter().filter(|attribute| attribute.path().is_ident("cfg")).any(|attribute| {
        let condition = attribute.to_token_stream().to_string().replace(' ', "");
        let is_feature = condition.contains("feature=\"internals\"");
        condition.contains("cfg(test)")
            || (is_feature && !condition.contains("not(feature=\"internals\")"))
    })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Returns the name that an item defines.
pub fn name_of(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Mod(item) => &item.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        _ => return None,
    };
    Some(ident.to_string())
}

/// Returns the paths that an import names, each with the name that it has here. That of a glob is `*`.
pub fn imports(tree: &UseTree) -> Vec<(Vec<String>, String)> {
    match tree {
        UseTree::Path(path) => {
            let first = path.ident.to_string();
            let inner = imports(&path.tree).into_iter();
            inner.map(|(rest, name)| ([vec![first.clone()], rest].concat(), name)).collect()
        }
        UseTree::Name(name) if name.ident == "self" => Vec::new(),
        UseTree::Name(name) => vec![(vec![name.ident.to_string()], name.ident.to_string())],
        UseTree::Rename(rename) => {
            vec![(vec![rename.ident.to_string()], rename.rename.to_string())]
        }
        UseTree::Glob(_) => vec![(vec!["*".to_owned()], "*".to_owned())],
        UseTree::Group(group) => group.items.iter().flat_map(imports).collect(),
    }
}

impl Crate {
    /// Reads the modules of a crate, from its root file on.
    pub fn read(root: &Path) -> Self {
        let mut modules = Self(BTreeMap::new());
        let file =
            syn::parse_file(&fs::read_to_string(root).expect("it is there")).expect("it is Rust");
        modules.add(Vec::new(), file.items, root.parent().expect("it is in a folder"));
        modules
    }

    /// Adds a module, and those in it. `folder` has the files of its inner modules.
    fn add(&mut self, path: Vec<String>, items: Vec<Item>, folder: &Path) {
        for item in &items {
            let Item::Mod(inner) = item else { continue };
            let name = inner.ident.to_string();
            let (path, folder) =
                ([&path[..], std::slice::from_ref(&name)].concat(), folder.join(&name));
            if self.0.contains_key(&path) {
                continue;
            }
            let inner = match &inner.content {
                Some((_, items)) => items.clone(),
                None => {
                    let files = [folder.with_extension("rs"), folder.join("mod.rs")];
                    let Some(text) = files.iter().find_map(|file| fs::read_to_string(file).ok())
                    else {
                        continue;
                    };
                    syn::parse_file(&text).expect("it is Rust").items
                }
            };
            self.add(path, inner, &folder);
        }
        self.0.insert(path.clone(), Module::new(path, items));
    }

    pub fn find(&self, path: &[String]) -> Option<&Module> {
        self.0.get(path)
    }

    pub fn module(&self, path: &[String]) -> &Module {
        self.find(path).unwrap_or_else(|| panic!("there is no module {}", path.join("::")))
    }

    /// Returns all items that programs may see, with their modules.
    pub fn items(&self) -> impl Iterator<Item = (&Module, &Item)> {
        let all =
            self.0.values().flat_map(|module| module.items.iter().map(move |item| (module, item)));
        all.filter(|(_, item)| !is_internal(item))
    }

    /// Returns all blocks `impl`, with their modules.
    pub fn impls(&self) -> impl Iterator<Item = (&Module, &ItemImpl)> {
        self.items().filter_map(|(module, item)| match item {
            Item::Impl(block) => Some((module, block)),
            _ => None,
        })
    }

    /// Returns where a path that is used in a module is defined; `None` if that is in another crate.
    pub fn resolve<'a>(&'a self, module: &'a Module, path: &[String]) -> Option<Name<'a>> {
        self.resolve_at_depth(module, path, 0)
    }

    fn resolve_at_depth<'a>(
        &'a self,
        module: &'a Module,
        path: &[String],
        depth: usize,
    ) -> Option<Name<'a>> {
        // Imports may be circular.
        if depth > 16 {
            return None;
        }
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => return self.resolve_at_depth(self.module(&[]), rest, depth + 1),
            "self" => return self.resolve_at_depth(module, rest, depth + 1),
            "super" => {
                let parent = self.find(module.path.split_last()?.1)?;
                return self.resolve_at_depth(parent, rest, depth + 1);
            }
            _ => {}
        }
        if rest.is_empty() && module.names.contains(first) {
            return Some(Name { module, name: first.clone() });
        }
        if let Some(inner) = self.find(&module.child(first))
            && !rest.is_empty()
        {
            return self.resolve_at_depth(inner, rest, depth + 1);
        }
        for (target, name) in &module.imports {
            let target = match name.as_str() {
                "*" => [&target[..target.len() - 1], path].concat(),
                name if name == first => [&target[..], rest].concat(),
                _ => continue,
            };
            if let Some(found) = self.resolve_at_depth(module, &target, depth + 1) {
                return Some(found);
            }
        }
        None
    }
}
