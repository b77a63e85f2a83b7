# A module for NixOS, with the static program of a release, for example:
#
#   imports = [ ./gannet.nix ];
#   services.gannet = {
#     enable = true;
#     package = pkgs.runCommand "gannet" { } "install -D -m 755 ${./gannet} $out/bin/gannet";
#     settings = {
#       path = "/srv/www";
#       listen = [ "0.0.0.0:80" "[::]:80" ];
#     };
#   };
#   networking.firewall.allowedTCPPorts = [ 80 ];
#
# The keys of 'settings' are those of the configuration (docs/manual/reference.md). A change of them reloads the
# server.
{ config, lib, pkgs, ... }:
let
  cfg = config.services.gannet;
  format = pkgs.formats.toml { };
  program = lib.getExe' cfg.package "gannet";
in
{
  options.services.gannet = {
    enable = lib.mkEnableOption "gannet, a static web server";
    package = lib.mkOption {
      type = lib.types.package;
      description = "The package that has bin/gannet.";
    };
    settings = lib.mkOption {
      type = format.type;
      default = { };
      description = "The configuration.";
    };
    environmentFile = lib.mkOption {
      type = lib.types.nullOr lib.types.path;
      default = null;
      description = "Variables that are secret, such as the credentials of a bucket.";
    };
  };

  config = lib.mkIf cfg.enable {
    # The file has one name, so that a reload reads the new one.
    environment.etc."gannet/gannet.toml".source = format.generate "gannet.toml" cfg.settings;
    users.users.gannet = {
      isSystemUser = true;
      group = "gannet";
    };
    users.groups.gannet = { };
    systemd.services.gannet = {
      description = "gannet web server";
      wantedBy = [ "multi-user.target" ];
      wants = [ "network-online.target" ];
      after = [ "network-online.target" ];
      startLimitIntervalSec = 0;
      reloadTriggers = [ config.environment.etc."gannet/gannet.toml".source ];
      serviceConfig = {
        Type = "notify";
        ExecStart = "${program} serve --config /etc/gannet/gannet.toml";
        ExecReload = [
          "${pkgs.coreutils}/bin/kill -HUP $MAINPID"
          "${program} serve --config /etc/gannet/gannet.toml --check-config"
        ];
        EnvironmentFile = lib.mkIf (cfg.environmentFile != null) cfg.environmentFile;
        User = "gannet";
        Group = "gannet";
        AmbientCapabilities = "CAP_NET_BIND_SERVICE";
        CapabilityBoundingSet = "CAP_NET_BIND_SERVICE";
        LimitNOFILE = 1048576;
        # Without a release of a URL, it waits for the first one.
        TimeoutStartSec = "infinity";
        TimeoutStopSec = 40;
        WatchdogSec = 30;
        Restart = "always";
        RestartSec = 2;
        # A wrong configuration stays wrong.
        RestartPreventExitStatus = 2;
        NoNewPrivileges = true;
        StateDirectory = "gannet";
        StateDirectoryMode = "0700";
        ProtectSystem = "strict";
        ProtectHome = true;
        PrivateTmp = true;
        PrivateDevices = true;
        ProtectKernelTunables = true;
        ProtectKernelModules = true;
        ProtectKernelLogs = true;
        ProtectControlGroups = true;
        ProtectClock = true;
        ProtectHostname = true;
        RestrictNamespaces = true;
        RestrictRealtime = true;
        RestrictAddressFamilies = "AF_INET AF_INET6 AF_UNIX AF_NETLINK";
        LockPersonality = true;
        MemoryDenyWriteExecute = true;
        SystemCallArchitectures = "native";
      };
    };
  };
}
