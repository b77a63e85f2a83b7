# Servers that follow a store. The first task makes a copy of it and ends; the second keeps it up to date.
job "site" {
  type = "service"

  update {
    max_parallel = 1
    health_check = "checks"
    auto_revert  = true
  }

  group "site" {
    count = 3

    network {
      port "http" {
        to = 8080
      }
    }

    service {
      name     = "site"
      port     = "http"
      provider = "nomad"

      check {
        type     = "http"
        path     = "/"
        interval = "10s"
        timeout  = "2s"
      }
    }

    task "copy" {
      driver = "docker"

      lifecycle {
        hook = "prestart"
      }

      config {
        image = "registry.example.org/gannet:0.1.0"
        args  = ["follow", "https://releases.example.org/site", "/alloc/data/store", "--once"]
      }

      resources {
        cpu    = 100
        memory = 384
      }
    }

    task "follow" {
      driver = "docker"

      lifecycle {
        hook    = "prestart"
        sidecar = true
      }

      config {
        image = "registry.example.org/gannet:0.1.0"
        args  = ["follow", "https://releases.example.org/site", "/alloc/data/store"]
      }

      resources {
        cpu    = 50
        memory = 384
      }
    }

    task "gannet" {
      driver = "docker"

      config {
        image           = "registry.example.org/gannet:0.1.0"
        ports           = ["http"]
        readonly_rootfs = true
        cap_drop        = ["all"]
      }

      env {
        GANNET_PATH = "/alloc/data/store"
      }

      # Longer than --grace.
      kill_timeout = "40s"

      resources {
        cpu    = 200
        memory = 512
      }
    }
  }
}
