//! The library's posts about itself, which `rejoin status` reads.

use rejoin_openssl::{Features, Standing, Subject, post, post_features, post_standing};
use rejoin_store::Store;

use crate::settings::ModuleSettings;

/// Posts where the settings are from, whatever they say.
pub(crate) fn source(source: &str) {
    post(Subject::Configuration, source);
}

/// Posts the settings.
pub(crate) fn settings(settings: &ModuleSettings) {
    post(Subject::Cache, &settings.cache.to_string());
    post(Subject::Folder, &settings.folder.display().to_string());
    post(Subject::Context, settings.context.as_deref().unwrap_or_default());
    post_features(Features {
        stateful: settings.stateful,
        single_use: settings.single_use,
        shares_ticket_keys: settings.tickets.is_some(),
    });
}

/// Posts that the program attached a store to a context itself.
pub(crate) fn attached_by_the_program(store: &Store) {
    source("the program itself");
    post(Subject::Cache, &store.name().to_string());
    attached(true);
}

/// Posts that the library is attached, and whether its cache is open.
pub(crate) fn attached(is_open: bool) {
    post(Subject::Trouble, "");
    post_standing(if is_open { Standing::Open } else { Standing::Ready });
}

/// Posts that the cache cannot be opened, and that the library tries again.
pub(crate) fn tries_again(why: &str) {
    post(Subject::Trouble, why);
    post_standing(Standing::Trying);
}

/// Posts that the server runs without Rejoin.
pub(crate) fn gave_up(why: &str) {
    post(Subject::Trouble, why);
    post_standing(Standing::GaveUp);
}
