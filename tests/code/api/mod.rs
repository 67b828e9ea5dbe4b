//! The public API, in `docs/api.txt`: a change of it is a change of that file.
//!
//! `BURN_WGSL_BLESS=1 cargo test --test code api` writes it again. Items that macros make are not listed.

mod modules;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use quote::ToTokens;
use syn::{
    Attribute, Fields, ImplItem, Item, ItemImpl, ItemMacro, Meta, TraitItem, Type, Visibility,
};

use modules::{Crate, Module, Name, is_internal, is_internal_by};

/// Returns tokens as a programmer writes them, on one line.
fn text(tokens: &impl ToTokens) -> String {
    let mut text = tokens.to_token_stream().to_string().replace('\n', " ");
    for (spaced, tight) in [
        (" ::", "::"),
        (":: ", "::"),
        (" ,", ","),
        (" :", ":"),
        (" ;", ";"),
        (" <", "<"),
        ("< ", "<"),
        (" >", ">"),
        (" (", "("),
        ("( ", "("),
        (" )", ")"),
        ("& ", "&"),
        ("[ ", "["),
        (" ]", "]"),
        (" .", "."),
        (",)", ")"),
        (",>", ">"),
    ] {
        text = text.replace(spaced, tight);
    }
    text.replace("->", " -> ").replace("  ", " ")
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn is_exported(item: &ItemMacro) -> bool {
    item.attrs.iter().any(|attribute| attribute.path().is_ident("macro_export"))
}

/// The lines of the listing.
struct Listing<'a> {
    library: &'a Crate,
    /// The blocks `impl` of each type, by its module and name.
    impls: BTreeMap<(Vec<String>, String), Vec<&'a ItemImpl>>,
    lines: BTreeSet<String>,
}

impl<'a> Listing<'a> {
    fn new(library: &'a Crate) -> Self {
        let mut impls: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (of, block) in library.impls() {
            let Type::Path(path) = &*block.self_ty else { continue };
            let target: Vec<String> =
                path.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            if let Some(Name { module, name }) = library.resolve(of, &target) {
                impls.entry((module.path.clone(), name)).or_default().push(block);
            }
        }
        Self { library, impls, lines: BTreeSet::new() }
    }

    fn add(&mut self, line: String) {
        self.lines.insert(line);
    }

    /// Lists what a public module exports, under its public path.
    fn module(&mut self, module: &Module, path: &str) {
        for item in module.items.iter().filter(|item| !is_internal(item)) {
            match item {
                Item::Mod(inner) if is_public(&inner.vis) => {
                    let name = inner.ident.to_string();
                    self.module(
                        self.library.module(&module.child(&name)),
                        &format!("{path}::{name}"),
                    );
                }
                Item::Use(import) if is_public(&import.vis) => {
                    for (target, name) in modules::imports(&import.tree) {
                        self.import(module, &target, &format!("{path}::{name}"));
                    }
                }
                item => self.item(module, item, path),
            }
        }
    }

    /// Lists what an import exports.
    fn import(&mut self, module: &Module, target: &[String], path: &str) {
        let Some(Name { module: found, name }) = self.library.resolve(module, target) else {
            return self.add(format!("{path} = {}", target.join("::")));
        };
        let parent = path.rsplit_once("::").map_or(path, |(parent, _)| parent);
        if let Some(inner) = self.library.find(&found.child(&name)) {
            return self.module(inner, path);
        }
        let others = std::mem::take(&mut self.lines);
        let is_it = |item: &&Item| modules::name_of(item).as_ref() == Some(&name);
        found.items.iter().filter(is_it).for_each(|item| self.item(found, item, parent));
        // It may have another name here.
        let defined = format!("{parent}::{name}");
        let lines = std::mem::replace(&mut self.lines, others);
        self.lines.extend(lines.iter().map(|line| line.replacen(&defined, path, 1)));
    }

    /// Lists an item that is defined in a module, under its public path.
    fn item(&mut self, module: &Module, item: &Item, path: &str) {
        match item {
            Item::Macro(item) if is_exported(item) => {
                if let Some(name) = &item.ident {
                    self.add(format!("burn_wgsl::{name}!"));
                }
            }
            Item::Fn(item) if is_public(&item.vis) => {
                self.add(format!("{path}::{}", text(&item.sig)))
            }
            Item::Const(item) if is_public(&item.vis) => {
                self.add(format!("{path}::{}: const {}", item.ident, text(&item.ty)));
            }
            Item::Type(item) if is_public(&item.vis) => {
                self.add(format!(
                    "{path}::{}{} = {}",
                    item.ident,
                    text(&item.generics),
                    text(&item.ty)
                ));
            }
            Item::Struct(item) if is_public(&item.vis) => {
                let name = format!("{path}::{}", item.ident);
                self.add(format!("{name}: struct{}", text(&item.generics)));
                self.attributes(&name, &item.attrs);
                self.fields(&name, &item.fields);
                self.methods(module, &item.ident.to_string(), &name);
            }
            Item::Enum(item) if is_public(&item.vis) => {
                let name = format!("{path}::{}", item.ident);
                self.add(format!("{name}: enum{}", text(&item.generics)));
                self.attributes(&name, &item.attrs);
                for variant in &item.variants {
                    self.add(format!(
                        "{name}::{}{}",
                        variant.ident,
                        text(&without_docs(&variant.fields))
                    ));
                }
                self.methods(module, &item.ident.to_string(), &name);
            }
            Item::Trait(item) if is_public(&item.vis) => {
                let name = format!("{path}::{}", item.ident);
                self.add(format!(
                    "{name}: trait{} {}",
                    text(&item.generics),
                    text(&item.supertraits)
                ));
                for part in &item.items {
                    match part {
                        TraitItem::Fn(part) => self.add(format!("{name}::{}", text(&part.sig))),
                        TraitItem::Type(part) => self.add(format!("{name}::{}: type", part.ident)),
                        TraitItem::Const(part) => {
                            self.add(format!("{name}::{}: const", part.ident))
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }

    /// Lists the traits that are derived, and whether there may be more fields or variants.
    fn attributes(&mut self, name: &str, attributes: &[Attribute]) {
        for attribute in attributes {
            if attribute.path().is_ident("non_exhaustive") {
                self.add(format!("{name}: non_exhaustive"));
            } else if attribute.path().is_ident("derive")
                && let Meta::List(list) = &attribute.meta
            {
                self.add(format!("{name}: derive {}", text(&list.tokens)));
            }
        }
    }

    fn fields(&mut self, name: &str, fields: &Fields) {
        for field in fields.iter().filter(|field| is_public(&field.vis)) {
            if let Some(ident) = &field.ident {
                self.add(format!("{name}.{ident}: {}", text(&field.ty)));
            }
        }
    }

    /// Lists the public methods of a type that is defined in a module, and the traits that are implemented for it.
    fn methods(&mut self, module: &Module, ident: &str, name: &str) {
        let key = (module.path.clone(), ident.to_owned());
        for block in self.impls.get(&key).cloned().unwrap_or_default() {
            if let Some((_, of_trait, _)) = &block.trait_ {
                self.add(format!("{name}: impl {}", text(of_trait)));
                continue;
            }
            for part in &block.items {
                match part {
                    ImplItem::Fn(part) if is_public(&part.vis) && !is_internal_by(&part.attrs) => {
                        self.add(format!("{name}::{}", text(&part.sig)));
                    }
                    ImplItem::Const(part) if is_public(&part.vis) => {
                        self.add(format!("{name}::{}: const {}", part.ident, text(&part.ty)));
                    }
                    _ => {}
                }
            }
        }
    }
}

/// Returns the fields of a variant without their documentation.
fn without_docs(fields: &Fields) -> Fields {
    let mut fields = fields.clone();
    fields.iter_mut().for_each(|field| field.attrs.clear());
    fields
}

#[test]
fn the_public_api_is_that_of_the_list() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let library = Crate::read(&root.join("src/lib.rs"));
    let mut listing = Listing::new(&library);
    listing.module(library.module(&[]), "burn_wgsl");
    // Of private modules, too.
    for (module, item) in library.items().filter(|(_, item)| matches!(item, Item::Macro(_))) {
        listing.item(module, item, "burn_wgsl");
    }
    let listed = listing.lines.into_iter().collect::<Vec<_>>().join("\n") + "\n";
    assert!(
        listed.contains("burn_wgsl::memory::usage(device: &WgslDevice)")
            || listed.contains("fn usage(device")
    );
    assert!(listed.lines().count() > 500, "{listed}");

    let file = root.join("docs/api.txt");
    if std::env::var_os("BURN_WGSL_BLESS").is_some() {
        std::fs::write(&file, &listed).expect("the folder is writable");
    }
    let known = std::fs::read_to_string(&file).expect("it is in the clone");
    let (known, listed): (BTreeSet<_>, BTreeSet<_>) =
        (known.lines().collect(), listed.lines().collect());
    let gone: Vec<_> = known.difference(&listed).map(|line| format!("- {line}")).collect();
    let new: Vec<_> = listed.difference(&known).map(|line| format!("+ {line}")).collect();
    assert!(
        gone.is_empty() && new.is_empty(),
        "the public API has changed; lines that are gone break programs. If that is intended, \
         write it to CHANGELOG.md, and run BURN_WGSL_BLESS=1 cargo test --test code api\n{}",
        [gone, new].concat().join("\n")
    );
}
