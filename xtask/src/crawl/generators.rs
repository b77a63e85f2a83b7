//! The generators to crawl.

/// A generator: its program and origin, its input files, its arguments, and the folder below the
/// input that it builds into.
pub(super) struct Generator {
    pub(super) program: &'static str,
    pub(super) origin: Origin,
    pub(super) output: &'static str,
    pub(super) input: &'static [(&'static str, &'static str)],
    pub(super) arguments: &'static [&'static str],
}

/// The origin of a program.
#[derive(Clone, Copy)]
pub(super) enum Origin {
    /// A Debian package.
    Debian(&'static str),
    /// npm packages with their major versions.
    Npm(&'static [&'static str]),
}

pub(super) const GENERATORS: [Generator; 12] = [
    Generator {
        program: "hugo",
        origin: Origin::Debian("hugo"),
        output: "public",
        input: &[
            ("config.toml", "title = 'Test'\nbaseURL = '/'\n"),
            ("layouts/404.html", "<title>none</title>"),
            ("layouts/index.html", HUGO_PAGE),
            ("layouts/_default/list.html", HUGO_PAGE),
            ("layouts/_default/single.html", HUGO_PAGE),
            ("assets/a.css", "body { color: red }\n"),
            ("static/robots.txt", "User-agent: *\n"),
            ("static/img/a b.png", "no picture"),
            (
                "content/posts/one.md",
                "---\ntitle: One\ndate: 2024-01-01\ntags: [a, 'b c']\naliases: [/old/one]\n---\nA\n",
            ),
            (
                "content/about.md",
                "---\ntitle: About\nurl: /about.html\n---\nB\n",
            ),
        ],
        arguments: &["--quiet"],
    },
    Generator {
        program: "jekyll",
        origin: Origin::Debian("jekyll"),
        output: "_site",
        input: &[
            ("_config.yml", "permalink: pretty\n"),
            (
                "_layouts/page.html",
                "<title>{{ page.title }}</title>{{ content }}",
            ),
            ("index.md", "---\nlayout: page\ntitle: Home\n---\nHello\n"),
            (
                "about.md",
                "---\nlayout: page\ntitle: About\npermalink: /about.html\n---\nA\n",
            ),
            (
                "_posts/2024-01-01-first-one.md",
                "---\nlayout: page\ntitle: First\n---\nB\n",
            ),
            ("404.md", "---\npermalink: /404.html\n---\nNone\n"),
        ],
        arguments: &["build", "--quiet"],
    },
    Generator {
        program: "mkdocs",
        origin: Origin::Debian("mkdocs"),
        output: "site",
        input: &[
            (
                "mkdocs.yml",
                "site_name: Test\nsite_url: http://127.0.0.1/\n",
            ),
            ("docs/index.md", "# Home\n"),
            ("docs/v1.2.md", "# Version 1.2\n"),
            ("docs/\u{fc}ber uns.md", "# About\n"),
            ("docs/guide/index.md", "# Guide\n"),
            ("docs/guide/first.md", "# First\n"),
        ],
        arguments: &["build", "--quiet"],
    },
    Generator {
        program: "sphinx-build",
        origin: Origin::Debian("python3-sphinx"),
        output: "out",
        input: &[
            ("conf.py", "project = 'Test'\n"),
            (
                "index.rst",
                "Test\n====\n\n.. toctree::\n\n   part/a\n   b\n",
            ),
            ("part/a.rst", "A\n=\n"),
            ("b.rst", "B\n=\n"),
        ],
        arguments: &["-q", "-b", "html", ".", "out"],
    },
    Generator {
        program: "pelican",
        origin: Origin::Debian("pelican"),
        output: "output",
        input: &[
            (
                "pelicanconf.py",
                "SITENAME = 'Test'\nSITEURL = ''\nPATH = 'content'\nTIMEZONE = 'UTC'\n",
            ),
            ("content/images/a b.png", "no picture"),
            (
                "content/first.md",
                "Title: First\nDate: 2024-01-01\nTags: a, b c\nCategory: \u{fc}ber\n\nA\n",
            ),
            ("content/pages/about.md", "Title: About\n\nB\n"),
        ],
        arguments: &["--quiet"],
    },
    Generator {
        program: "eleventy",
        origin: Origin::Npm(&["@11ty/eleventy@3"]),
        output: "_site",
        input: &[
            ("package.json", PACKAGE),
            ("index.md", "# Home\n"),
            ("posts/one.md", "# One\n"),
            ("posts/v1.2.md", "# Version 1.2\n"),
            ("none.md", "---\npermalink: /404.html\n---\nNone\n"),
            ("about.md", "---\npermalink: /about.html\n---\nAbout\n"),
        ],
        arguments: &["--quiet"],
    },
    Generator {
        program: "hexo",
        origin: Origin::Npm(&[
            "hexo@7",
            "hexo-generator-archive@2",
            "hexo-generator-category@2",
            "hexo-generator-index@4",
            "hexo-generator-tag@2",
            "hexo-renderer-ejs@2",
            "hexo-renderer-marked@7",
            "hexo-renderer-stylus@3",
            "hexo-theme-landscape@1",
        ]),
        output: "public",
        input: &[
            ("package.json", HEXO_PACKAGE),
            (
                "_config.yml",
                "title: Test\nurl: http://127.0.0.1\ntheme: landscape\n",
            ),
            (
                "source/_posts/one.md",
                "---\ntitle: One\ndate: 2024-01-01\ntags: [a, b c]\n---\nA\n",
            ),
            ("source/about/index.md", "---\ntitle: About\n---\nB\n"),
        ],
        arguments: &["generate", "--silent"],
    },
    Generator {
        program: "vite",
        origin: Origin::Npm(&["vite@6"]),
        output: "dist",
        input: &[
            ("package.json", PACKAGE),
            (
                "index.html",
                "<!doctype html><title>T</title><script type=module src=/src/main.js></script>\n",
            ),
            (
                "src/main.js",
                "import './a.css';\nimport('./late.js').then((late) => late.go());\n",
            ),
            ("src/a.css", "body { color: red }\n"),
            ("src/late.js", "export const go = () => 1;\n"),
            ("public/robots.txt", "User-agent: *\n"),
        ],
        arguments: &["build", "--logLevel", "error"],
    },
    Generator {
        program: "vitepress",
        origin: Origin::Npm(&["vitepress@1"]),
        output: ".vitepress/dist",
        input: &[
            ("package.json", PACKAGE),
            ("index.md", "# Home\n"),
            ("guide/index.md", "# Guide\n"),
            ("guide/first.md", "# First\n"),
        ],
        arguments: &["build"],
    },
    Generator {
        program: "astro",
        origin: Origin::Npm(&["astro@4"]),
        output: "dist",
        input: &[
            ("package.json", PACKAGE),
            (
                "src/pages/index.astro",
                "<style>p { color: red }</style><script>import '../a.js';</script><p>Home\n",
            ),
            ("src/a.js", "console.log(1);\n"),
            (
                "astro.config.mjs",
                "export default { build: { inlineStylesheets: 'never' }, \
                 vite: { build: { assetsInlineLimit: 0 } } };\n",
            ),
            ("src/pages/blog/one.astro", "<p>One\n"),
            ("src/pages/404.astro", "<p>None\n"),
            ("public/a b.txt", "A\n"),
        ],
        arguments: &["build"],
    },
    Generator {
        program: "next",
        origin: Origin::Npm(&["next@14", "react@18", "react-dom@18"]),
        output: "out",
        input: &[
            ("package.json", PACKAGE),
            ("next.config.js", "module.exports = { output: 'export' };\n"),
            ("pages/index.js", "export default () => <p>Home</p>;\n"),
            ("pages/posts/one.js", "export default () => <p>One</p>;\n"),
            ("public/a.txt", "A\n"),
        ],
        arguments: &["build"],
    },
    Generator {
        program: "docusaurus",
        origin: Origin::Npm(&[
            "@docusaurus/core@3",
            "@docusaurus/preset-classic@3",
            "react@18",
            "react-dom@18",
        ]),
        output: "build",
        input: &[
            ("package.json", PACKAGE),
            (
                "docusaurus.config.js",
                "module.exports = { title: 'Test', url: 'http://127.0.0.1', baseUrl: '/', \
                 presets: [['classic', { blog: false }]] };\n",
            ),
            ("docs/intro.md", "# Intro\n"),
            ("docs/part/v1.2.md", "# Version 1.2\n"),
            ("src/pages/index.md", "# Home\n"),
        ],
        arguments: &["build"],
    },
];

/// The `package.json` that npm needs.
const PACKAGE: &str = "{\"private\": true}\n";

/// Hexo loads the plugins named here.
const HEXO_PACKAGE: &str = "{\"private\": true, \"hexo\": {\"version\": \"7\"}, \"dependencies\": {\
    \"hexo\": \"7\", \"hexo-generator-archive\": \"2\", \"hexo-generator-category\": \"2\", \
    \"hexo-generator-index\": \"4\", \"hexo-generator-tag\": \"2\", \"hexo-renderer-ejs\": \"2\", \
    \"hexo-renderer-marked\": \"7\", \"hexo-renderer-stylus\": \"3\", \
    \"hexo-theme-landscape\": \"1\"}}\n";

const HUGO_PAGE: &str = "{{ $style := resources.Get \"a.css\" | fingerprint }}\
    <title>{{ .Title }}</title><link rel=stylesheet href=\"{{ $style.RelPermalink }}\">{{ .Content }}";
