//! Which files of a crate use which: from the paths in their items, with re-exports followed to where a name is from.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, ItemMod, ItemUse, UseTree, Visibility};

/// A file of a crate and what it names.
#[derive(Default)]
struct Module {
    /// Imported names, by their local name: the path, and whether it is a re-export.
    imports: Vec<(String, Vec<String>, bool)>,
    /// All other paths.
    paths: Vec<Vec<String>>,
}

/// The modules of a crate that are files, by their path: `runtime::gpu` for `runtime/gpu.rs`, an empty path for the
/// root.
pub struct Crate(BTreeMap<String, Module>);

/// For each module those that it uses.
pub type Uses = BTreeMap<String, BTreeSet<String>>;

impl Crate {
    /// Reads the files of a folder, but for those in `without`.
    pub fn read(folder: &Path, without: &str) -> Self {
        let mut files = Vec::new();
        let mut folders = vec![folder.to_owned()];
        while let Some(next) = folders.pop() {
            for entry in fs::read_dir(&next).expect("the folder is readable") {
                let path = entry.expect("the folder is readable").path();
                let name = path.strip_prefix(folder).expect("it is in the folder");
                let name = name.to_string_lossy().replace('\\', "/");
                if path.is_dir() {
                    folders.extend((name != without).then_some(path));
                } else if let Some(name) = name.strip_suffix(".rs") {
                    files.push((name.to_owned(), fs::read_to_string(&path).expect("it is UTF-8")));
                }
            }
        }
        Self::parse(files.iter().map(|(name, text)| (&**name, &**text)))
    }

    /// Parses files, which are named as `runtime/gpu`.
    pub fn parse<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let module = |(name, text): (&str, &str)| {
            let file = syn::parse_file(text).unwrap_or_else(|error| panic!("{name}: {error}"));
            let mut module = Module::default();
            module.visit_file(&file);
            (module_of(name), module)
        };
        Self(files.into_iter().map(module).collect())
    }

    /// Returns the names with which paths in a module begin: crates and others.
    pub fn first_names(&self, module: &str) -> BTreeSet<&str> {
        let Module { imports, paths } = &self.0[module];
        let paths = imports.iter().map(|(_, path, _)| path).chain(paths);
        paths.filter_map(|path| path.first()).map(String::as_str).collect()
    }

    /// Returns which modules use which. A module and those in it belong together: what one uses of a module that it
    /// is in does not count, and neither do re-exports of what is in it.
    pub fn uses(&self) -> Uses {
        let uses = |(name, module): (&String, &Module)| {
            let own = module.imports.iter().filter(|(_, path, is_reexport)| {
                let target = self.absolute(name, path);
                !is_reexport || target.is_none_or(|target| !is_in(&target.join("::"), name))
            });
            let paths = own.map(|(_, path, _)| path).chain(&module.paths);
            let targets = paths.filter_map(|path| self.resolve(&self.absolute(name, path)?, 0));
            let others = targets.filter(|target| !is_in(name, target));
            (name.clone(), others.collect())
        };
        self.0.iter().map(uses).collect()
    }

    /// Returns a path from the root of the crate; `None` if it leads out of it.
    fn absolute(&self, module: &str, path: &[String]) -> Option<Vec<String>> {
        let mut inside: Vec<String> = module.split("::").map(str::to_owned).collect();
        inside.retain(|name| !name.is_empty());
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => Some(rest.to_vec()),
            "self" => Some([inside, rest.to_vec()].concat()),
            "super" => {
                inside.pop()?;
                match rest.first().is_some_and(|next| next == "super") {
                    true => self.absolute(&inside.join("::"), rest),
                    false => Some([inside, rest.to_vec()].concat()),
                }
            }
            name => {
                let imports = &self.0.get(module)?.imports;
                if let Some((_, path, _)) = imports.iter().find(|(local, ..)| local == name)
                    && path.first().is_some_and(|first| first != name)
                {
                    return Some([self.absolute(module, path)?, rest.to_vec()].concat());
                }
                inside.extend_from_slice(path);
                let child = inside[..inside.len() - rest.len()].join("::");
                self.0.contains_key(&child).then_some(inside)
            }
        }
    }

    /// Returns the module that an absolute path leads to, where the name in it comes from.
    fn resolve(&self, path: &[String], depth: usize) -> Option<String> {
        let (module, rest) = (0..=path.len()).rev().find_map(|end| {
            let module = path[..end].join("::");
            self.0.contains_key(&module).then_some((module, &path[end..]))
        })?;
        let imported = rest.first().and_then(|name| {
            let imports = &self.0[&module].imports;
            imports.iter().find(|(local, _, is_reexport)| local == name && *is_reexport)
        });
        match imported.filter(|_| depth < 8) {
            Some((_, target, _)) => {
                let target = [self.absolute(&module, target)?, rest[1..].to_vec()].concat();
                self.resolve(&target, depth + 1)
            }
            None => Some(module),
        }
    }
}

/// Returns whether a module is another one or in it.
fn is_in(module: &str, other: &str) -> bool {
    other.is_empty()
        || module.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

fn module_of(file: &str) -> String {
    let roots = ["mod", "lib", "main"];
    let names = file.split('/');
    let mut names: Vec<&str> = names.collect();
    if names.last().is_some_and(|last| roots.contains(last)) {
        names.pop();
    }
    names.join("::")
}

/// Returns circles of modules: each a list of which every module uses the next, and the last the first.
pub fn circles(uses: &Uses) -> Vec<Vec<&str>> {
    let mut done: BTreeSet<&str> = BTreeSet::new();
    let mut circles = Vec::new();
    for start in uses.keys() {
        visit_module(uses, start, &mut Vec::new(), &mut done, &mut circles);
    }
    circles
}

fn visit_module<'a>(
    uses: &'a Uses,
    module: &'a str,
    path: &mut Vec<&'a str>,
    done: &mut BTreeSet<&'a str>,
    circles: &mut Vec<Vec<&'a str>>,
) {
    if let Some(start) = path.iter().position(|other| *other == module) {
        circles.push(path[start..].to_vec());
        return;
    }
    if done.contains(module) {
        return;
    }
    path.push(module);
    for used in uses.get(module).into_iter().flatten() {
        visit_module(uses, used, path, done, circles);
    }
    path.pop();
    done.insert(module);
}

/// Returns whether an item is only there in tests: `cfg(test)` and `cfg(all(test, ..))`.
fn is_of_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let is_cfg = attribute.path().is_ident("cfg");
        let list = attribute.meta.require_list().ok().filter(|_| is_cfg);
        list.is_some_and(|list| {
            let condition = list.tokens.to_string().replace(' ', "");
            condition == "test" || condition.starts_with("all(test,")
        })
    })
}

impl Module {
    fn import(&mut self, tree: &UseTree, before: &mut Vec<String>, is_reexport: bool) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.import(&path.tree, before, is_reexport);
                before.pop();
            }
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.import(tree, before, is_reexport));
            }
            UseTree::Name(name) if name.ident == "self" => {
                let local = before.last().cloned().unwrap_or_default();
                self.imports.push((local, before.clone(), is_reexport));
            }
            UseTree::Name(name) => {
                let path = [&before[..], &[name.ident.to_string()]].concat();
                self.imports.push((name.ident.to_string(), path, is_reexport));
            }
            UseTree::Rename(name) => {
                let mut path = before.clone();
                path.extend((name.ident != "self").then(|| name.ident.to_string()));
                self.imports.push((name.rename.to_string(), path, is_reexport));
            }
            UseTree::Glob(_) => self.imports.push(("*".to_owned(), before.clone(), is_reexport)),
        }
    }

    /// Adds the paths in the tokens of a macro.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.paths.extend((path.len() > 1).then(|| path.clone()));
                        path.clear();
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                token => {
                    self.paths.extend((path.len() > 1).then(|| path.clone()));
                    path.clear();
                    colons = 0;
                    if let TokenTree::Group(group) = token {
                        self.tokens(group.stream());
                    }
                }
            }
        }
        self.paths.extend((path.len() > 1).then_some(path));
    }
}

impl<'ast> Visit<'ast> for Module {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let attributes: &[Attribute] = match item {
            syn::Item::Const(item) => &item.attrs,
            syn::Item::Enum(item) => &item.attrs,
            syn::Item::Fn(item) => &item.attrs,
            syn::Item::Impl(item) => &item.attrs,
            syn::Item::Macro(item) => &item.attrs,
            syn::Item::Mod(item) => &item.attrs,
            syn::Item::Static(item) => &item.attrs,
            syn::Item::Struct(item) => &item.attrs,
            syn::Item::Trait(item) => &item.attrs,
            syn::Item::Type(item) => &item.attrs,
            syn::Item::Use(item) => &item.attrs,
            _ => &[],
        };
        if !is_of_tests(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let is_reexport = !matches!(item.vis, Visibility::Inherited);
        self.import(&item.tree, &mut Vec::new(), is_reexport);
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        // Paths in a module within a file begin with another `super`.
        let mut inner = Module::default();
        visit::visit_item_mod(&mut inner, item);
        let outer = |mut path: Vec<String>| {
            if path.first().is_some_and(|first| first == "super") {
                path.remove(0);
                if path.first().is_none_or(|first| first != "super") {
                    path.insert(0, "self".to_owned());
                }
            }
            path
        };
        let imports = inner.imports.into_iter().map(|(name, path, vis)| (name, outer(path), vis));
        self.imports.extend(imports.filter(|(_, path, _)| path.len() > 1));
        self.paths.extend(inner.paths.into_iter().map(outer));
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.paths.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        self.tokens(item.tokens.clone());
        visit::visit_macro(self, item);
    }
}
